import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { changeOpening, showOpenings } from '../../src/cli/corridors.js';
import { createClient } from '../fixtures/client.js';
import { called } from '../fixtures/operators.js';
import { openPayer } from '../fixtures/payer.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

// An operator closes and reopens corridors; payouts accepted earlier continue.

let system: TestSystem;
beforeAll(async () => {
  system = await startSystem();
});
afterEach(async () => {
  vi.restoreAllMocks();
  // Reopens whatever a test has closed.
  const pair = { source: 'USD', destination: 'EUR' };
  for (const flags of [{ source: 'USD' }, { destination: 'TRY' }, pair]) {
    await runCommand('open', flags);
  }
});
afterAll(() => system.stop());

/** Runs a command as an operator, and returns its output. */
async function runCommand(verb: 'close' | 'open', flags: Readonly<Record<string, string>>) {
  const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
  try {
    await changeOpening(called(system, '', flags), verb);
    return log.mock.calls.flat().join('\n');
  } finally {
    log.mockRestore();
  }
}

const dollarsToEuro = {
  source_currency: 'USD',
  destination_currency: 'EUR',
  amount: '10000',
} as const;

describe('a corridor that is closed', () => {
  it('is refused for quotes, previews, and payouts even with an earlier quote', async () => {
    const { client, ask, send } = await openPayer(system);
    const before = await send('simulate: delay 1s');
    const earlierQuote = await client('POST /v1/quotes', { form: dollarsToEuro });
    expect(await runCommand('close', { source: 'USD', destination: 'EUR' })).toMatch(
      /^USD to EUR {2}closed from 20/,
    );
    const refused = { code: 'corridor_unavailable', received: 'USD to EUR' };
    expect((await client('POST /v1/quotes', { form: dollarsToEuro })).body).toMatchObject(refused);
    expect((await ask('Closed')).body).toMatchObject(refused);
    const { id: payee } = (await client('POST /v1/beneficiaries', { form: beneficiary })).body;
    const quoted = { quote: earlierQuote.body['id'], beneficiary: payee };
    const withQuote = await client('POST /v1/payouts', { json: quoted });
    expect(withQuote.body).toMatchObject({ ...refused, param: 'quote' });
    const item = { source_currency: 'USD', amount: 10_000, beneficiary: payee };
    const json = { payouts: [item], validate_only: true };
    expect((await client('POST /v1/batches', { json })).body).toMatchObject({
      counts: { accepted: 0, refused: 1 },
    });
    expect((await client(`GET /v1/payouts/${before}`)).body).not.toHaveProperty('code');
    await runCommand('open', { source: 'USD', destination: 'EUR' });
    await send('Open again');
    // No other destination would be accepted.
    await runCommand('close', { source: 'USD' });
    for (const { body } of [
      await client('POST /v1/quotes', { form: dollarsToEuro }),
      await ask('Closed as a source'),
    ]) {
      expect(body).toMatchObject({ ...refused, param: 'source_currency' });
    }
    await runCommand('open', { source: 'USD' });
  });

  it('is not listed, and stays closed while any rule closes it', async () => {
    const { apiKey } = await createTestAccount(system.database);
    const client = createClient(system.apiUrl, apiKey);
    const listed = async (path: string) => {
      const { body } = await client(`GET /v1/${path}?source_currency=USD&destination_currency=TRY`);
      return JSON.stringify(body['data']) !== '[]';
    };
    expect([await listed('corridors'), await listed('rates')]).toEqual([true, true]);
    await runCommand('close', { destination: 'TRY' });
    expect([await listed('corridors'), await listed('rates')]).toEqual([false, false]);
    await runCommand('open', { source: 'USD', destination: 'TRY' });
    expect(await listed('corridors')).toBe(false);
    await runCommand('close', { source: 'USD' });
    await runCommand('open', { destination: 'TRY' });
    expect(await listed('corridors')).toBe(false);
    await runCommand('open', { source: 'USD' });
    expect(await listed('corridors')).toBe(true);
  });

  it('is open until the time from which it is closed', async () => {
    const { send } = await openPayer(system);
    const from = new Date(Date.now() + 60 * 60_000).toISOString();
    await runCommand('close', { source: 'USD', from });
    await send('Still open');
    const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
    await showOpenings(called(system, ''));
    expect(log.mock.calls.flat()).toContain(`USD to any currency  closed from ${from}`);
    // Present and future openings are shown in separate lines.
    expect(log.mock.calls.flat().filter((line) => `${line}`.startsWith('USD to any'))).toHaveLength(
      2,
    );
  });
});

it.each([
  [{}, '--source or --destination is missing'],
  [{ source: 'XXX' }, '--source expects a currency: USD,'],
  [{ destination: 'EUR', from: '2020-01-01T00:00:00Z' }, '--from expects a time in the future'],
])('closing a corridor with the flags %j is refused', async (flags, message) => {
  await expect(runCommand('close', flags)).rejects.toThrow(message);
});
