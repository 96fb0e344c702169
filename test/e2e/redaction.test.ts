import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { createApiKey } from '../../src/db/apiKeys.js';
import { eventually } from '../assertions/eventually.js';
import { type ConnectProxy, startConnectProxy } from '../fakes/connectProxy.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import {
  type ApiAnswer,
  type ApiClient,
  createClient,
  textOf,
  untilStatus,
} from '../fixtures/client.js';
import { createTestAccount } from '../servers/database.js';
import { type Processes, startProcesses } from '../servers/processes.js';

let parts: Processes;
let receiver: Receiver;
/** All webhooks leave through it. */
let proxy: ConnectProxy;
/** What may stand nowhere but in its own answer: whoever has it can use it. */
const secrets = new Map<string, string>();
/** What only its account may see: neither logs nor histories may have it. */
const personal = new Map<string, string>([
  ['a name', 'Zaphod Plantagenet'],
  ['a reference', 'geheime Rechnung 4711'],
  ['metadata', 'vertraulich-0815'],
]);
const answers: { readonly request: string; readonly text: string }[] = [];

/** German check digits (ISO 13616), so that the IBAN is one that nothing else uses. */
function ibanOf(account: string): string {
  const check = 98n - (BigInt(`37040044${account}131400`) % 97n);
  return `DE${String(check).padStart(2, '0')}37040044${account}`;
}

const iban = ibanOf('0907060504');
const wrongIban = `${iban.slice(0, 2)}${iban.slice(2, 4) === '11' ? '12' : '11'}${iban.slice(4)}`;
const accountNumber = '90817263549';

beforeAll(async () => {
  [proxy, receiver] = await Promise.all([startConnectProxy(), startReceiver()]);
  const password = 'a-password-of-the-egress-proxy';
  secrets.set('proxyPassword', password);
  const WEBHOOK_PROXY_URL = proxy.url.replace('//', `//corridor:${password}@`);
  // The most talkative that they can be set to.
  parts = await startProcesses({ LOG_LEVEL: 'debug', WEBHOOK_PROXY_URL });
  await journey();
});
afterAll(async () => {
  await receiver?.close();
  await parts?.remove();
  await proxy?.stop();
});

/** A client whose answers are kept, to be looked through. */
function recording(client: ApiClient): ApiClient {
  return async (request, options) => {
    const answer = await client(request, options);
    answers.push({ request, text: JSON.stringify(answer.body) });
    return answer;
  };
}

const list = z.object({ data: z.array(z.looseObject({ id: z.string() })) });
const idsOf = (answer: ApiAnswer) => list.parse(answer.body).data.map(({ id }) => id);

/** Everything that an account, a stranger, a bank and an operator do, with what is secret in it. */
async function journey(): Promise<void> {
  const { apiKey } = await createTestAccount(parts.database);
  const unknownKey = createApiKey('test');
  for (const [name, value] of Object.entries({
    apiKey,
    unknownKey,
    iban,
    wrongIban,
    accountNumber,
  })) {
    secrets.set(name, value);
  }
  const plain = createClient(parts.apiUrl, apiKey);
  const client = recording(plain);
  const hidden = 'token-in-a-webhook-url';
  personal.set('a token in a URL', hidden);
  const endpoint = await plain('POST /v1/webhook_endpoints', {
    json: { url: `${receiver.url}?token=${hidden}`, events: ['*'] },
    idempotencyKey: 'endpoint',
  });
  secrets.set('webhookSecret', textOf(endpoint, 'secret'));
  await client(`GET /v1/webhook_endpoints/${textOf(endpoint, 'id')}`);
  await client('GET /v1/webhook_endpoints');

  const name = personal.get('a name');
  const german = { type: 'individual', name, country: 'DE', currency: 'EUR', iban };
  const american = {
    ...german,
    country: 'US',
    currency: 'USD',
    iban: undefined,
    account_number: accountNumber,
    routing_number: '021000021',
  };
  const [inGermany, inAmerica] = [
    textOf(
      await client('POST /v1/beneficiaries', { json: german, idempotencyKey: 'german' }),
      'id',
    ),
    textOf(await client('POST /v1/beneficiaries', { json: american }), 'id'),
  ];
  await failures(client, { german, american, apiKey, unknownKey });
  const payouts = await pay(client, inGermany, inAmerica);
  await operate(payouts.stuck);
  await eventually('the last webhook', 30_000, () =>
    receiver.received.find(({ body }) => body.includes('batch.completed')),
  );
  for (const path of [
    '/v1/payouts?expand[]=beneficiary&limit=100',
    '/v1/beneficiaries',
    '/v1/events?limit=100',
    '/v1/account',
  ]) {
    await client(`GET ${path}`);
  }
  const events = idsOf(await client('GET /v1/events?limit=100'));
  for (const event of events) await client(`GET /v1/events/${event}/deliveries`);
}

type Sent = Readonly<Record<'german' | 'american', object>> &
  Readonly<Record<'apiKey' | 'unknownKey', string>>;

/** Requests that are refused, each with something that must not be repeated. */
async function failures(client: ApiClient, { german, american, apiKey, unknownKey }: Sent) {
  const stranger = recording(createClient(parts.apiUrl, unknownKey));
  expect((await stranger('GET /v1/balances')).status).toBe(401);
  await recording(createClient(parts.apiUrl, `${unknownKey}x`))('GET /v1/balances');
  const refused: readonly (readonly [request: string, json?: object])[] = [
    ['POST /v1/beneficiaries', { ...german, iban: wrongIban }],
    ['POST /v1/beneficiaries', { ...german, iban: [iban] }],
    ['POST /v1/beneficiaries', { ...german, iban: undefined, account_number: accountNumber }],
    ['POST /v1/beneficiaries', { ...american, account_number: `${accountNumber}${accountNumber}` }],
    ['POST /v1/beneficiaries', { ...german, bic: iban }],
    [`GET /v1/payouts/${apiKey}`],
    [`GET /v1/payouts?api_key=${apiKey}`],
    [`GET /${apiKey}`],
  ];
  for (const [request, json] of refused) {
    const { status } = await client(request, json === undefined ? {} : { json });
    expect(status, request).toBeGreaterThanOrEqual(400);
  }
  const conflict = await client('POST /v1/beneficiaries', {
    json: { ...german, name: 'Somebody Else' },
    idempotencyKey: 'german',
  });
  expect(conflict.body).toMatchObject({ code: 'idempotency_key_reused', param: 'name' });
}

async function pay(client: ApiClient, inGermany: string, inAmerica: string) {
  const reference = personal.get('a reference');
  const shared = {
    source_currency: 'USD',
    amount: 5_000,
    metadata: { secret: personal.get('metadata') },
  };
  const quote = await client('POST /v1/quotes', {
    json: { source_currency: 'USD', destination_currency: 'EUR', amount: 5_000 },
  });
  const quoted = await client('POST /v1/payouts', {
    json: {
      quote: textOf(quote, 'id'),
      beneficiary: inGermany,
      reference,
      metadata: shared.metadata,
    },
  });
  const live = await client('POST /v1/payouts', {
    json: { ...shared, beneficiary: inAmerica, reference },
  });
  const rejected = await client('POST /v1/payouts', {
    json: { ...shared, beneficiary: inGermany, reference: 'simulate: reject AC04' },
  });
  const unanswered = await client('POST /v1/payouts', {
    json: { ...shared, beneficiary: inGermany, reference: 'simulate: timeout then settle' },
  });
  const stuck = await client('POST /v1/payouts', {
    json: { ...shared, beneficiary: inGermany, reference: 'simulate: never settle' },
  });
  const batch = await client('POST /v1/batches', {
    json: {
      payouts: [inGermany, inAmerica].map((beneficiary) => ({ ...shared, beneficiary, reference })),
    },
  });
  await untilStatus(client, textOf(quoted, 'id'), 'settled');
  await untilStatus(client, textOf(live, 'id'), 'settled');
  await untilStatus(client, textOf(rejected, 'id'), 'failed');
  await untilStatus(client, textOf(unanswered, 'id'), 'settled');
  await untilStatus(client, textOf(stuck, 'id'), 'sent');
  await client(`GET /v1/batches/${textOf(batch, 'id')}/payouts`);
  return { stuck: textOf(stuck, 'id') };
}

/** An operator looks at a payout and acts on it. */
async function operate(id: string): Promise<void> {
  const main = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));
  const run = async (...args: readonly string[]) => {
    // What an operator writes may be about anybody.
    const reason = personal.get('a reference') ?? '';
    const { stdout, stderr } = await promisify(execFile)(
      process.execPath,
      [main, 'payouts', ...args, '--reason', reason],
      { env: { ...process.env, ...parts.operatorEnv }, timeout: 60_000 },
    ).catch((error: unknown) => z.object({ stdout: z.string(), stderr: z.string() }).parse(error));
    answers.push({ request: `corridor payouts ${args.join(' ')}`, text: stdout + stderr });
  };
  await run('show', id);
  await run('cancel', id);
  await run('list');
}

/** Every text of a history, with its payloads decoded. */
function textsOf(history: unknown): string {
  const texts: string[] = [];
  JSON.parse(JSON.stringify(history), (key, value: unknown) => {
    if (typeof value !== 'string') return value;
    texts.push(key === 'data' ? Buffer.from(value, 'base64').toString('utf8') : value);
    return value;
  });
  return texts.join('\n');
}

/** Which of the planted texts stand in a text. */
function foundIn(
  text: string,
  ...planted: readonly ReadonlyMap<string, string>[]
): readonly string[] {
  return planted.flatMap((texts) =>
    [...texts].filter(([, value]) => text.includes(value)).map(([name]) => name),
  );
}

it('every webhook has left through the egress proxy', () => {
  const { host } = new URL(receiver.url);
  expect(new Set(proxy.asked())).toEqual(new Set([host]));
  const left = new Set(proxy.ports());
  expect(receiver.ports.length).toBeGreaterThan(5);
  expect(receiver.ports.filter((port) => !left.has(port))).toEqual([]);
});

describe('what is secret, and what is somebody’s own, after a whole journey', () => {
  it('stands in no log line of any process', () => {
    const parted = new Set(parts.lines.map((line) => /"part":"([^"]+)"/.exec(line)?.[1]));
    expect(parted).toContain('api');
    expect(parted).toContain('worker-single');
    expect(parts.lines.length).toBeGreaterThan(50);
    const leaks = parts.lines.filter((line) => foundIn(line, secrets, personal).length > 0);
    expect(leaks).toEqual([]);
  });

  it('stands in no history, memo or search attribute of any workflow', async () => {
    const types = new Set<string>();
    for await (const {
      workflowId,
      runId,
      type,
      memo,
      typedSearchAttributes,
    } of parts.temporal.workflow.list()) {
      types.add(type);
      const history = await parts.temporal.workflow.getHandle(workflowId, runId).fetchHistory();
      const text = `${textsOf(JSON.parse(historyToJSON(history)))}${JSON.stringify([workflowId, memo, typedSearchAttributes.getAll()])}`;
      expect(foundIn(text, secrets, personal), workflowId).toEqual([]);
    }
    for (const type of ['payout', 'batch', 'batchChunk']) expect([...types]).toContain(type);
  });

  it('stands in no metric', async () => {
    const ready = /"(?:metrics|ready)":"(http[^"]+)","msg":"the (?:API|worker) is ready"/;
    const urls = parts.lines.flatMap((line) => ready.exec(line)?.[1] ?? []);
    expect(urls.length).toBe(3);
    for (const url of urls) {
      const text = await (await fetch(`${url}/metrics`)).text();
      expect(text).toContain('corridor_');
      expect(foundIn(text, secrets, personal)).toEqual([]);
    }
  });

  it('stands in no file of PostgreSQL or Temporal, but what is sent to be stored as it is', async () => {
    const sealed = new Map([...secrets, ['a name', personal.get('a name') ?? '']]);
    const stored = new Map([['a reference', personal.get('a reference') ?? '']]);
    const found = new Map<string, readonly string[]>();
    const journal = join(parts.directory, 'bank-journal.jsonl');
    const all = readdirSync(parts.directory, { recursive: true, withFileTypes: true });
    for (const { parentPath, name } of all.filter((file) => file.isFile())) {
      const path = join(parentPath, name);
      // PostgreSQL removes files while it runs.
      const text = (await readFile(path).catch(() => Buffer.alloc(0))).toString('latin1');
      found.set(path, [...foundIn(text, sealed), ...foundIn(text, stored)]);
    }
    // The bank has to know whom it pays.
    expect(found.get(journal)).toEqual(expect.arrayContaining(['iban', 'a name']));
    found.delete(journal);
    const names = new Set([...found.values()].flat());
    expect(names).toEqual(new Set(['a reference']));
    expect(found.size).toBeGreaterThan(1_000);
  });

  it('stands in no answer, problem, event or webhook but masked', async () => {
    const leaks = answers.filter(({ text }) => foundIn(text, secrets).length > 0);
    expect(
      leaks.map(({ request, text }) => [request, foundIn(text, secrets), text.slice(0, 600)]),
    ).toEqual([]);
    const events = await parts.database<
      { body: string }[]
    >`select to_jsonb(e)::text as body from events e`;
    expect(events.length).toBeGreaterThan(5);
    for (const { body } of [...events, ...receiver.received])
      expect(foundIn(body, secrets)).toEqual([]);
    expect(answers.some(({ text }) => text.includes(iban.slice(-4)))).toBe(true);
  });
});
