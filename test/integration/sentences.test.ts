import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { type RequestOptions, textOf } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { type WrongRequest, wrongRequests } from '../fixtures/wrongRequests.js';
import { startSystem, type TestSystem } from '../servers/system.js';

/**
 * The messages that integrators get when a request is refused, in one table for people to review. Each
 * message must be enough to correct the request. The table is the file next to this test.
 */

let system: TestSystem;
/** The IDs used in requests. In the table each appears under its name here. */
const ids: Record<string, string> = {};

beforeAll(async () => {
  system = await startSystem();
  const stored = await system.client('POST /v1/beneficiaries', { form: beneficiary });
  ids['{bnf}'] = textOf(stored, 'id');
  const priced = { source_currency: 'USD', destination_currency: 'EUR', amount: '5000' };
  const quote = textOf(await system.client('POST /v1/quotes', { form: priced }), 'id');
  ids['{qt}'] = quote;
  const payout = await system.client('POST /v1/payouts', {
    form: { quote, beneficiary: ids['{bnf}'] },
    headers: { prefer: 'wait=10' },
  });
  ids['{po}'] = textOf(payout, 'id');
  await system.client('POST /v1/quotes', { form: priced, idempotencyKey: 'first-quote' });
  const item = { source_currency: 'USD', amount: '5000', beneficiary: 'bnf_0' };
  const batch = {
    payouts: [
      { ...item, amount: '6000' },
      { ...item, amount: '7000' },
    ],
  };
  await system.client('POST /v1/batches', { json: batch, idempotencyKey: 'first-batch' });
  // Not a name of this machine, so it needs verification; but nothing listens there.
  const endpoint = { url: 'http://0.0.0.0:9/', 'events[]': '*' };
  const added = await system.client('POST /v1/webhook_endpoints', { form: endpoint });
  ids['{we}'] = textOf(added, 'id');
});
afterAll(() => system.stop());

const problem = z.object({
  status: z.number(),
  code: z.string(),
  detail: z.string(),
  errors: z.array(z.object({ detail: z.string().optional(), param: z.string().optional() })),
});

/** Replaces the names of IDs by the IDs; `unnamed` does the reverse. */
function named(text: string): string {
  return Object.entries(ids).reduce((whole, [name, id]) => whole.replaceAll(name, id), text);
}

function unnamed(text: string): string {
  const known = Object.entries(ids).reduce((whole, [name, id]) => whole.replaceAll(id, name), text);
  return known.replaceAll(/\b(po|qt|bnf|bat)_[0-9a-z]{20,}/g, '$1_…');
}

async function sentencesOf([what, request, options = {}]: WrongRequest): Promise<string> {
  const filled: RequestOptions = {
    ...options,
    ...(options.form && { form: filledForm(options.form) }),
    ...(options.json !== undefined && { json: JSON.parse(named(JSON.stringify(options.json))) }),
    ...(typeof options.raw?.body === 'string' && {
      raw: { ...options.raw, body: named(options.raw.body) },
    }),
  };
  const answer = await ask(named(request), filled);
  const { status, code, detail, errors } = problem.parse(answer);
  const others = errors.slice(1).map((error) => `- ${error.detail ?? error.param}`);
  const shown =
    others.length > 4 ? [...others.slice(0, 3), `- and ${others.length - 3} more`] : others;
  return unnamed([`**${what}**: ${status} \`${code}\``, detail, ...shown].join('\n'));
}

/** Bypasses the test client for an unknown API version, whose document that client would look for. */
async function ask(request: string, options: RequestOptions): Promise<unknown> {
  if (options.headers?.['corridor-version'] === undefined) {
    return (await system.client(request, options)).body;
  }
  const headers = { authorization: `Bearer ${system.account.apiKey}`, ...options.headers };
  return (await fetch(system.apiUrl + request.split(' ')[1], { headers })).json();
}

function filledForm(form: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(form).map(([name, value]) => [name, named(value)]));
}

it('wrong requests are answered with sentences that say what to change', async () => {
  const sentences: string[] = [];
  for (const wrong of wrongRequests) sentences.push(await sentencesOf(wrong));
  await expect(`${sentences.join('\n\n')}\n`).toMatchFileSnapshot('sentences.md');
});
