import { execFile } from 'node:child_process';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { startSystem, type TestSystem } from '../servers/system.js';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));

let system: TestSystem;
let directory: string;

beforeAll(async () => {
  system = await startSystem();
  directory = await mkdtemp(join(tmpdir(), 'corridor-typed-client-'));
  await symlink(join(root, 'node_modules'), join(directory, 'node_modules'));
  await writeFile(join(directory, 'package.json'), '{"type":"module"}');
  const document = `${system.apiUrl}/openapi.json`;
  await runBin('oazapfts/dist/cli.js', [document, join(directory, 'client.ts')]);
});
afterAll(async () => {
  await rm(directory, { recursive: true });
  await system.stop();
});

function runBin(file: string, args: readonly string[]) {
  const path = join(root, 'node_modules', file);
  return run(process.execPath, [path, ...args], { timeout: 50_000, maxBuffer: 2 ** 20 });
}

/** A program as an integrator would write it, using the generated client's names and types. */
const journey = `
import {
  createBatch, createBeneficiary, createPayout, createQuote, createWebhookEndpoint, defaults,
  listBatches, listPayouts, readPayout,
} from './client.js';

const [, , baseUrl = '', key = ''] = process.argv;
defaults.baseUrl = baseUrl;
defaults.headers = { authorization: 'Bearer ' + key };

const quoted = await createQuote({ source_currency: 'USD', destination_currency: 'EUR', amount: 125_000 });
if (quoted.status !== 201) throw new Error(quoted.data.detail);
const rate: number = quoted.data.rate;
const stored = await createBeneficiary({
  type: 'individual', name: 'Ada Lovelace', country: 'DE', currency: 'EUR', iban: 'DE89370400440532013000',
});
if (stored.status !== 201) throw new Error(stored.data.detail);
const sent = await createPayout(
  { quote: quoted.data.id, beneficiary: stored.data.id, metadata: { order: '7' } },
  { idempotencyKey: 'order-7', prefer: 'wait=20' },
);
if (sent.status !== 201) throw new Error(JSON.stringify(sent.data));
const read = await readPayout(sent.data.id);
if (read.status !== 200) throw new Error(read.data.code);
const refused = await createPayout({ beneficiary: 'bnf_0', source_currency: 'USD', amount: 5_000 });
const code: string | undefined = refused.status === 422 ? refused.data.code : undefined;
const item = (order: string) =>
  ({ beneficiary: stored.data.id, source_currency: 'USD', amount: 5_000, metadata: { order } }) as const;
const batch = await createBatch({ payouts: [item('8'), item('9'), item('10')] }, { mode: 'all_or_nothing' });
if (batch.status !== 202) throw new Error(JSON.stringify(batch.data));
const endpoint = await createWebhookEndpoint({
  url: 'http://127.0.0.1:9/webhooks', events: ['payout.settled', 'payout.failed'],
});
if (endpoint.status !== 201) throw new Error(JSON.stringify(endpoint.data));
const found = [];
let startingAfter: string | undefined;
for (;;) {
  const page = await listPayouts({
    limit: 2, created: { gte: '2026-01-01' }, expand: ['beneficiary', 'batch'], sourceCurrency: 'USD',
    batch: batch.data.id, ...(startingAfter === undefined ? {} : { startingAfter }),
  });
  if (page.status !== 200) throw new Error(JSON.stringify(page.data));
  for (const { beneficiary } of page.data.data) found.push(typeof beneficiary);
  startingAfter = page.data.data.at(-1)?.id;
  if (!page.data.has_more) break;
}
const named = await listPayouts({ metadata: { order: '9' } });
const listed = await listBatches({ limit: 1 });
const counts = listed.status === 200 ? listed.data.data[0]?.counts?.total : undefined;
console.log(JSON.stringify({
  found, named: named.status === 200 && named.data.data.length, events: endpoint.data.events,
  mode: batch.data.object === 'batch' && batch.data.mode, counts,
}));
console.log(JSON.stringify({ rate, promised: quoted.data.receive_amount, payout: read.data, code }));
`;

/** Compiles a program next to the client and returns the compiler's output. */
async function compile(name: string, text: string): Promise<string> {
  const file = join(directory, `${name}.ts`);
  await writeFile(file, text);
  const args = [
    ...[
      '--ignoreConfig',
      '--strict',
      '--noUncheckedIndexedAccess',
      '--skipLibCheck',
      '--types',
      'node',
    ],
    ...['--target', 'es2023', '--lib', 'es2023,dom,dom.iterable', '--module', 'nodenext', file],
  ];
  return runBin('typescript/lib/tsc.js', args).then(
    ({ stdout }) => stdout,
    (failure: unknown) => z.object({ stdout: z.string() }).parse(failure).stdout,
  );
}

describe('a client that is generated from /openapi.json', () => {
  it('compiles, sends a payout until it is settled, a batch, an endpoint, and reads lists', async () => {
    expect(await compile('journey', journey)).toBe('');
    const args = [join(directory, 'journey.js'), system.apiUrl, system.account.apiKey];
    const { stdout } = await run(process.execPath, args, { timeout: 50_000 });
    const [others = '', paid = ''] = stdout.trim().split('\n');
    expect(JSON.parse(others)).toEqual({
      found: ['object', 'object', 'object'],
      named: 1,
      events: ['payout.settled', 'payout.failed'],
      mode: 'all_or_nothing',
    });
    const output = JSON.parse(paid);
    expect(output).toMatchObject({
      rate: expect.any(Number),
      payout: { status: 'settled', received: output.promised, metadata: { order: '7' } },
      code: 'beneficiary_not_found',
    });
  });

  it.each([
    ['rate: number', 'rate: string'],
    ["source_currency: 'USD', d", "source_currencies: 'USD', d"],
    ['metadata: { order: ', 'metadata: { order: 7 || '],
    ['read.status !== 200', 'read.status !== 201'],
    ["'payout.failed'],", "'payout.paid'],"],
    ['limit: 2', "limit: '2'"],
    ["gte: '2026", "from: '2026"],
  ])('does not compile when %s is written %s', async (right, wrong) => {
    const mistaken = journey.replace(right, wrong);
    expect(mistaken).not.toBe(journey);
    expect(await compile('mistaken', mistaken)).toMatch(/mistaken\.ts.+error TS2/);
  });
});
