import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createKeyring } from '../../src/db/personalData.js';
import { createClient, textOf, untilStatus } from '../fixtures/client.js';
import { masterKey } from '../fixtures/keyring.js';
import { environmentOf } from '../fixtures/operators.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { startApiProcess } from '../servers/apiProcess.js';
import { createTestAccount } from '../servers/database.js';
import { startSecondApi } from '../servers/secondApi.js';
import { startSystem, type TestSystem } from '../servers/system.js';
import { temporalAddress } from '../servers/temporalAddress.js';

const next = 'c3'.repeat(32);
const ids = [...createKeyring([masterKey, next]).keys()];

let system: TestSystem;
beforeAll(async () => {
  // Every process must know the next key before any process wraps with it.
  system = await startSystem({ keyring: createKeyring([masterKey, next]) });
});
afterAll(() => system?.stop());

/** Runs `corridor master-key rotate` as an operator does, in a separate process. */
async function rotate(keys: string): Promise<string> {
  const main = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));
  const words = ['master-key', 'rotate', '--reason', 'yearly'];
  const env = { ...environmentOf(system.urls.operator), MASTER_KEY: keys };
  const { stdout } = await promisify(execFile)(process.execPath, [main, ...words], { env });
  return stdout;
}

const wrappedBy = async () => {
  const rows = await system.database<{ id: string }[]>`
    select distinct master_key_id as id from account_keys`;
  return rows.map(({ id }) => id);
};

it('a new master key takes over without downtime', { timeout: 60_000 }, async () => {
  // A deployment that puts the next key first has reached one of two API processes.
  const reached = await startSecondApi(system, createKeyring([next, masterKey]));
  const stored: (readonly [apiKey: string, id: string])[] = [];
  let isRotating = true;
  let served = 0;
  /** New customers store a beneficiary through one process, then read and pay it through the other. */
  async function useBoth(first: string, second: string): Promise<void> {
    while (isRotating || served < 20) {
      const { apiKey } = await createTestAccount(system.database);
      const created = await createClient(first, apiKey)('POST /v1/beneficiaries', {
        json: beneficiary,
      });
      const id = textOf(created, 'id');
      const client = createClient(second, apiKey);
      const shown = await client(`GET /v1/beneficiaries/${id}`);
      expect(shown.body).toMatchObject({ name: beneficiary.name });
      const paid = await client('POST /v1/payouts', {
        json: { beneficiary: id, source_currency: 'USD', amount: 5_000 },
      });
      expect(paid.status).toBeLessThan(300);
      await untilStatus(client, textOf(paid, 'id'), 'settled');
      stored.push([apiKey, id]);
      served += 1;
    }
  }
  const both = [useBoth(system.apiUrl, reached.url), useBoth(reached.url, system.apiUrl)];
  const outputs: string[] = [];
  try {
    for (let run = 0; run < 3; run += 1) outputs.push(await rotate(`${next} ${masterKey}`));
  } finally {
    isRotating = false;
    await Promise.all(both);
    await reached.close();
  }
  // The first process still wrapped with the older key. After it has ended, those keys are rewrapped too.
  outputs.push(await rotate(`${next}\n${masterKey}`), await rotate(next));
  expect(outputs[0]).toContain(`All account keys use ${ids[1]}`);
  expect(outputs.at(-1)).toContain('0 rewrapped');
  expect(await wrappedBy()).toEqual([ids[1]]);
  const lines = await system.database`
    select from operator_actions
     where subject_type = 'master_key' and subject_id = ${ids[1] ?? ''}
       and operator = 'grace' and command ->> 'kind' = 'master-key rotate'`;
  expect(lines.length).toBe(5);

  const after = await startSecondApi(system, createKeyring([next]));
  try {
    expect(stored.length).toBeGreaterThanOrEqual(20);
    for (const [apiKey, id] of stored) {
      const shown = await createClient(after.url, apiKey)(`GET /v1/beneficiaries/${id}`);
      expect(shown.body).toMatchObject({ name: beneficiary.name });
    }
  } finally {
    await after.close();
  }
});

it('without a master key in use, an API is not ready and a worker does not start', async () => {
  const readinessWith = async (MASTER_KEY: string) => {
    const api = await startApiProcess(system.urls.api, { MASTER_KEY });
    try {
      const { status } = await fetch(`${api.metricsUrl}/readyz`);
      const metrics = await (await fetch(`${api.metricsUrl}/metrics`)).text();
      const gauge = Number(/^corridor_ready\{.*\} (\d)$/m.exec(metrics)?.[1]);
      const logged = api.lines.map((line) => /"reason":"(.*?)"/.exec(line)?.[1]);
      return { status, gauge, reasons: logged.filter((reason) => reason !== undefined) };
    } finally {
      await api.part.stop();
    }
  };
  const ready = { status: 200, gauge: 1, reasons: [] };
  expect(await readinessWith(`${masterKey} ${next}`)).toEqual(ready);
  const reasons = ['MASTER_KEY lacks a key that is in use'];
  expect(await readinessWith(masterKey)).toEqual({ status: 503, gauge: 0, reasons });
  const env = {
    ...process.env,
    DATABASE_URL: system.urls.worker,
    TEMPORAL_ADDRESS: temporalAddress(),
    MASTER_KEY: masterKey,
    SANDBOX_BANK_URL: system.bank.url,
    SANDBOX_BANK_TOKEN: system.bank.apiToken,
    RATE_SOURCE: 'reference',
  };
  const main = fileURLToPath(new URL('../../dist/src/worker/main.js', import.meta.url));
  await expect(promisify(execFile)(process.execPath, [main], { env })).rejects.toThrow(
    'MASTER_KEY: expected every key that wraps the key of an account',
  );
});

it('a rotation without the current wrapping key changes nothing', async () => {
  const before = await wrappedBy();
  await expect(rotate('d4'.repeat(32))).rejects.toThrow(/is not loaded/);
  expect(await wrappedBy()).toEqual(before);
  await expect(rotate('')).rejects.toThrow(/MASTER_KEY: expected 64 hexadecimal digits/);
});
