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

/** What an integrator would write; every name and type in it is the generated client's. */
const journey = `
import { createBeneficiary, createPayout, createQuote, defaults, readPayout } from './client.js';

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
console.log(JSON.stringify({ rate, promised: quoted.data.receive_amount, payout: read.data, code }));
`;

/** Compiles a program beside the client and returns what the compiler has to say. */
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
  it('compiles, and sends a payout until it is settled', async () => {
    expect(await compile('journey', journey)).toBe('');
    const args = [join(directory, 'journey.js'), system.apiUrl, system.account.apiKey];
    const { stdout } = await run(process.execPath, args, { timeout: 50_000 });
    const told = JSON.parse(stdout);
    expect(told).toMatchObject({
      rate: expect.any(Number),
      payout: { status: 'settled', received: told.promised, metadata: { order: '7' } },
      code: 'beneficiary_not_found',
    });
  });

  it.each([
    ['rate: number', 'rate: string'],
    ["source_currency: 'USD', d", "source_currencies: 'USD', d"],
    ['metadata: { order: ', 'metadata: { order: 7 || '],
    ['read.status !== 200', 'read.status !== 201'],
  ])('does not compile when %s is written %s', async (right, wrong) => {
    const mistaken = journey.replace(right, wrong);
    expect(mistaken).not.toBe(journey);
    expect(await compile('mistaken', mistaken)).toMatch(/mistaken\.ts.+error TS2/);
  });
});
