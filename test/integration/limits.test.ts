import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { ledgerActivities } from '../../src/activities/ledger.js';
import { changeLimits, changePayeeDelay, showLimits } from '../../src/cli/limits.js';
import { insertBeneficiary } from '../../src/db/beneficiaries.js';
import { exactlyOne, transaction } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { postEntries, setLimits } from '../../src/db/ledger.js';
import { findPayeeDelays } from '../../src/db/payeeDelays.js';
import { insertPayout } from '../../src/db/payouts.js';
import { fundEntry } from '../../src/domain/ledger.js';
import { createRails } from '../../src/rails/registry.js';
import { eventually } from '../assertions/eventually.js';
import { QuietRail } from '../fakes/quietRail.js';
import { silentDeliverer } from '../fakes/silentDeliverer.js';
import { openBatchPayer, rowsOf, untilBatch } from '../fixtures/batchPayer.js';
import { createClient, textOf, untilStatus } from '../fixtures/client.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { keyring } from '../fixtures/keyring.js';
import { called } from '../fixtures/operators.js';
import { openPayer, rowOf } from '../fixtures/payer.js';
import {
  american,
  beneficiary,
  livePayout,
  rateMaximumAgeMs,
  requestPayout,
} from '../fixtures/requestPayout.js';
import {
  addApiKey,
  createTestAccount,
  unbalancedCurrencies,
  untilLockWaits,
} from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

const dayMs = 24 * 60 * 60 * 1000;

let system: TestSystem;

beforeAll(async () => {
  // The tests count the use of one UTC day, so they do not begin shortly before its end.
  const leftMs = dayMs - (Date.now() % dayMs);
  if (leftMs < 3 * 60_000) await delay(leftMs + 1_000);
  system = await startSystem();
}, 6 * 60_000);
afterAll(async () => {
  // The counts must match the payouts, whatever happened to those.
  expect(await wrongUses()).toEqual([]);
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
  await system.stop();
});

/** Days whose count is not the sum of the payouts accepted on that day and not released. */
function wrongUses() {
  return system.database`
    select * from (
      select l.account_id, l.currency, (p.processing_since at time zone 'UTC')::date as day,
             sum(p.source_minor) filter (where p.status in ('processing', 'sent', 'settled')) as used
        from account_limits l
        join payouts p on p.account_id = l.account_id
         and l.currency in (p.source_currency, p.source_currency || '/' || p.destination_currency)
       where p.processing_since is not null group by 1, 2, 3) t
      full join limit_uses u using (account_id, currency, day)
     where coalesce(t.used, 0) <> coalesce(u.used_minor, 0)`;
}

/** Previews a batch, sends it, and waits for its end. */
async function previewAndSend(
  payer: Awaited<ReturnType<typeof openBatchPayer>>,
  payouts: Parameters<typeof payer.send>[0],
) {
  const json = { payouts, validate_only: true };
  const { body: preview } = await payer.client('POST /v1/batches', { json });
  const id = await payer.send(payouts);
  await untilBatch(payer.client, id);
  return { preview, rows: await rowsOf(system, id) };
}

type LimitFlags = Readonly<Partial<Record<'payout' | 'day' | 'month' | 'destination', string>>>;

/** Runs `corridor limits set` for USD, and returns its output. */
async function limit(accountId: string, flags: LimitFlags): Promise<string> {
  const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
  try {
    await changeLimits(called(system, accountId, { currency: 'USD', ...flags }));
    return log.mock.calls.flat().join('\n');
  } finally {
    log.mockRestore();
  }
}

/** The total counted on all days, to any destination or to one; undefined if nothing is counted. */
async function used(accountId: string, destination?: string): Promise<bigint | undefined> {
  const [row] = await system.database<{ usedMinor: bigint | null }[]>`
    select sum(used_minor)::bigint as used_minor from limit_uses
     where account_id = ${accountId} and currency = ${destination ? `USD/${destination}` : 'USD'}`;
  return row?.usedMinor ?? undefined;
}

function decide(driver: string, ids: readonly string[] = [driver]) {
  const { decidePayouts } = ledgerActivities({
    database: system.worker,
    rails: createRails([new QuietRail()]),
    rateMaximumAgeMs,
    factRules: usualFactRules,
    deliverer: silentDeliverer,
  });
  return decidePayouts({ driver, ids, workflowAgeMs: 0 });
}

const untilWaiting = (statements: number) =>
  untilLockWaits(system.database, `${statements} statements wait for a lock`, 20_000, statements);

/** A payout of 1,250.00 at the live rate that waits for its driver. */
async function pending(accountId: string, sourceCurrency: string, driver?: string) {
  const [id, beneficiaryId] = [newId('payout'), newId('beneficiary')];
  const terms = { ...livePayout, sourceCurrency, amount: 125_000n, beneficiaryId };
  await transaction(system.database, async (sql) => {
    await insertBeneficiary(sql, keyring, { id: beneficiaryId, accountId, details: beneficiary });
    await insertPayout(sql, { ...terms, id, accountId, driver: driver ?? id });
  });
  return id;
}

/** Makes every update of a payout wait for a lock, which is held until `work` ends. */
async function withHeldPayout(id: string, work: () => Promise<void>) {
  await system.database.unsafe(`
    create function wait_here() returns trigger language plpgsql as $$
    begin perform pg_advisory_xact_lock(7); return new; end $$;
    create trigger waits_here before update on payouts
      for each row when (new.id = '${id}') execute function wait_here()`);
  await transaction(system.database, async (hold) => {
    await hold`select pg_advisory_xact_lock(7)`;
    await work();
  });
}

const outcomes = (
  rows: readonly { readonly status: string; readonly statusReason: string | null }[],
) => rows.map(({ status, statusReason }) => statusReason ?? status);

describe('of payouts that exceed the limit of a day together', () => {
  it.each([
    ['its currency', undefined],
    ['its corridor', 'EUR'],
  ])('of %s exactly one is accepted when two are decided at once', async (_name, destination) => {
    const { account } = await createTestAccount(system.database);
    await limit(account.id, { ...(destination && { destination }), day: '2000' });
    const rows = [
      await requestPayout(system.database, account.id),
      await requestPayout(system.database, account.id),
    ];
    const deciding = await transaction(system.database, async (sql) => {
      await sql`select * from lock_funds(${rows.map(({ id }) => id)})`;
      const both = rows.map(({ id }) => decide(id));
      await untilWaiting(2);
      return { both };
    });
    await Promise.all(deciding.both);
    const decided = await Promise.all(rows.map(({ id }) => rowOf(system, id)));
    expect(outcomes(decided).sort()).toEqual(['limit_exceeded', 'processing']);
    expect(await used(account.id, destination)).toBe(125_000n);
  });

  it('exactly one is accepted when funds arrive while a list waits for another balance', async () => {
    const { account } = await createTestAccount(system.database, { funds: { EUR: 1_000_000n } });
    await limit(account.id, { day: '1300' });
    const listed = [
      await pending(account.id, 'EUR', 'list'),
      await pending(account.id, 'USD', 'list'),
    ] as const;
    const alone = await pending(account.id, 'USD');
    const entry = fundEntry('USD', 1_000_000n);
    const fund = { entry, mode: 'test', accountId: account.id, payoutId: null } as const;
    const deciding: Promise<unknown>[] = [];
    await withHeldPayout(listed[1], async () => {
      await transaction(system.database, async (sql) => {
        await sql`select * from lock_funds(${[listed[0]]})`;
        deciding.push(decide('list', listed));
        await untilWaiting(1);
        await transaction(system.database, (other) => postEntries(other, [fund]));
      });
      // The list has read the rules and the balance, and waits at its first write.
      await untilWaiting(1);
      await decide(alone);
    });
    await Promise.all(deciding);
    const decided = await Promise.all([...listed, alone].map((id) => rowOf(system, id)));
    expect(outcomes(decided)).toEqual(['processing', 'insufficient_funds', 'processing']);
    expect(await used(account.id)).toBe(125_000n);
  });

  it('as many are accepted as the limit allows, sent alone or in batches', async () => {
    const payer = await openBatchPayer(system, 10_000_000n);
    await limit(payer.accountId, { day: '777.77' });
    const amounts = Array.from({ length: 40 }, (_, index) => `${1_000 + 37 * index}`);
    const alone = amounts.map((amount) =>
      payer.client('POST /v1/payouts', { form: payer.item('alone', { amount }) }),
    );
    const batches = [0, 1].map(() =>
      payer.send(amounts.map((amount) => payer.item('in a batch', { amount }))),
    );
    await Promise.all(alone);
    await Promise.all((await Promise.all(batches)).map((id) => untilBatch(payer.client, id)));
    const [row] = await system.database<{ sum: bigint; leastRefused: bigint | null }[]>`
      select sum(source_minor)::bigint as sum,
             min(amount) filter (where status_reason = 'limit_exceeded') as least_refused
        from payouts where account_id = ${payer.accountId}`;
    const { sum, leastRefused } = exactlyOne(row);
    expect(sum).toBeLessThanOrEqual(77_777n);
    // The remainder is smaller than every refused payout; the smallest ones may all have been accepted.
    expect(sum + exactlyOne(leastRefused ?? undefined)).toBeGreaterThan(77_777n);
    expect(await used(payer.accountId)).toBe(sum);
  });
});

describe('a batch', () => {
  it('is accepted in order as far as the limits allow, as its preview says', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    await limit(payer.accountId, { payout: '60', day: '100' });
    const amounts = ['5000', '6001', '4000', '2000', '1000', '200'];
    const payouts = amounts.map((amount) => payer.item('limited', { amount }));
    const { preview, rows } = await previewAndSend(payer, payouts);
    expect(outcomes(rows)).toEqual([
      'settled',
      'limit_exceeded',
      'settled',
      'limit_exceeded',
      'settled',
      'limit_exceeded',
    ]);
    const refusals = rows.flatMap(({ refusal, batchIndex }) =>
      refusal === null
        ? []
        : [{ index: batchIndex, expected: refusal.expected, received: refusal.received }],
    );
    expect(preview).toMatchObject({ counts: { accepted: 3, refused: 3 }, refusals });
    expect(refusals[1]?.expected).toBe(
      'at most 10.00 USD, the remainder of the limit of 100.00 USD a day',
    );
  });

  it('that is all or nothing is refused as a whole, and uses nothing', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    await limit(payer.accountId, { month: '50' });
    const payouts = [payer.item('one'), payer.item('two'), payer.item('three')];
    const id = await payer.send(payouts, 'all_or_nothing');
    await untilBatch(payer.client, id);
    expect(outcomes(await rowsOf(system, id))).toEqual([
      'batch_refused',
      'batch_refused',
      'limit_exceeded',
    ]);
    expect(await used(payer.accountId)).toBeUndefined();
    const fits = await payer.send(payouts.slice(1), 'all_or_nothing');
    await untilBatch(payer.client, fits);
    expect(await used(payer.accountId)).toBe(4_000n);
  });
});

describe('a limit of a corridor', () => {
  /** A payer with a beneficiary in the United States besides the one in Germany. */
  async function openPayerOfTwo() {
    const payer = await openBatchPayer(system, 100_000n);
    const stored = await payer.client('POST /v1/beneficiaries', { form: american });
    const domestic = { beneficiary: textOf(stored, 'id') };
    const pay = (amount: string, other: Readonly<Record<string, string>> = {}) =>
      payer.client('POST /v1/payouts', {
        form: payer.item('single', { amount, ...other }),
        headers: { Prefer: 'wait=20' },
      });
    return { ...payer, domestic, pay };
  }

  it('counts earlier payouts, refuses beyond its boundary, and frees what failed', async () => {
    const { client, accountId, domestic, pay } = await openPayerOfTwo();
    const rejected = { reference: 'simulate: reject AC04' };
    const failing = textOf(await pay('1000', rejected), 'id');
    await pay('3000');
    await pay('2000', domestic);
    await untilStatus(client, failing, 'failed');
    await limit(accountId, { day: '500' });
    const shown = await limit(accountId, { destination: 'EUR', day: '100', month: '400' });
    expect(shown).toMatch(/^USD {2}500\.00 a day, 50\.00 used, resets at /m);
    expect(shown).toMatch(/^USD to EUR {2}100\.00 a day, 30\.00 used, resets at /m);
    expect(await pay('7001')).toMatchObject({
      status: 422,
      body: {
        code: 'limit_exceeded',
        expected: 'at most 70.00 USD, the remainder of the limit of 100.00 USD a day to EUR',
        detail: expect.stringMatching(
          /^The limit is 100\.00 USD a day to EUR, of which 30\.00 USD /,
        ),
      },
    });
    const released = textOf(await pay('7000', rejected), 'id');
    const elsewhere = textOf(await pay('1000', { ...domestic, ...rejected }), 'id');
    await untilStatus(client, released, 'failed');
    await untilStatus(client, elsewhere, 'failed');
    expect(await used(accountId, 'EUR')).toBe(3_000n);
    expect((await pay('7000')).status).toBe(201);
    expect((await pay('200')).body).toMatchObject({ code: 'limit_exceeded' });
    expect((await pay('20000', domestic)).status).toBe(201);
    expect(await used(accountId, 'EUR')).toBe(10_000n);
    // Both count against the limit of the currency.
    expect(await used(accountId)).toBe(32_000n);
    expect((await pay('18001', domestic)).body).toMatchObject({
      expected: 'at most 180.00 USD, the remainder of the limit of 500.00 USD a day',
    });
    expect((await client('GET /v1/limits')).body['data']).toMatchObject([
      { type: 'month', destination_currency: 'EUR', left: '300.00' },
      { type: 'day', currency: 'USD', destination_currency: null, left: '180.00' },
      { type: 'day', currency: 'USD', destination_currency: 'EUR', left: '0.00' },
    ]);
    await limit(accountId, { destination: 'EUR', day: 'none', month: 'none' });
    expect(await used(accountId, 'EUR')).toBeUndefined();
    expect(await used(accountId)).toBe(32_000n);
    expect((await pay('200')).status).toBe(201);
  });

  it('applies only to its own items of a batch, as the preview says', async () => {
    const payer = await openPayerOfTwo();
    await limit(payer.accountId, { destination: 'EUR', day: '50' });
    const payouts = [
      payer.item('fits'),
      payer.item('other', { ...payer.domestic, amount: '4000' }),
      payer.item('too much', { amount: '3001' }),
      payer.item('the rest', { amount: '3000' }),
      payer.item('none', { amount: '200' }),
    ];
    const { preview, rows } = await previewAndSend(payer, payouts);
    expect(outcomes(rows)).toEqual([
      'settled',
      'settled',
      'limit_exceeded',
      'settled',
      'limit_exceeded',
    ]);
    const refusals = rows.flatMap(({ refusal, batchIndex }) =>
      refusal === null ? [] : [{ index: batchIndex, expected: refusal.expected }],
    );
    expect(preview).toMatchObject({ counts: { accepted: 3, refused: 2 }, refusals });
    expect(await used(payer.accountId, 'EUR')).toBe(5_000n);
    const all = [payer.item('no more'), payer.item('other', payer.domestic)];
    const refused = await payer.send(all, 'all_or_nothing');
    await untilBatch(payer.client, refused);
    expect(outcomes(await rowsOf(system, refused))).toEqual(['limit_exceeded', 'batch_refused']);
    expect(await used(payer.accountId, 'EUR')).toBe(5_000n);
  });
});

describe('what counts towards a limit', () => {
  it('is what was accepted and did not fail or get canceled or returned', async () => {
    const payer = await openPayer(system);
    await limit(payer.accountId, { day: '500' });
    await limit(payer.accountId, { destination: 'EUR', day: '500' });
    const failing = await payer.send('simulate: reject AC04');
    const returning = await payer.send('simulate: return AM04 after 2s');
    const kept = await payer.send('kept');
    await untilStatus(payer.client, failing, 'failed');
    await untilStatus(payer.client, kept, 'settled');
    expect(await used(payer.accountId)).toBe(20_000n);
    await untilStatus(payer.client, returning, 'returned');
    expect(await used(payer.accountId)).toBe(10_000n);
    expect(await used(payer.accountId, 'EUR')).toBe(10_000n);
    const answer = await payer.ask('over the rest', { amount: '40001' });
    expect(answer).toMatchObject({
      status: 422,
      body: {
        code: 'limit_exceeded',
        param: 'amount',
        expected: 'at most 400.00 USD, the remainder of the limit of 500.00 USD a day',
        received: '400.01 USD',
        detail: expect.stringMatching(/100\.00 USD is used .* resets at \d{4}-\d\d-\d\dT00:00:00/),
      },
    });
    expect(await payer.ask('the rest', { amount: '40000' })).toMatchObject({ status: 201 });
  });

  it('includes what was accepted before the limit existed, but not before its window', async () => {
    const payer = await openPayer(system);
    const failing = await payer.send('simulate: reject AC04');
    await payer.send('before');
    await untilStatus(payer.client, failing, 'failed');
    expect(await used(payer.accountId)).toBeUndefined();
    const shown = await limit(payer.accountId, { day: '150', month: '300' });
    expect(shown).toMatch(
      /^USD {2}300\.00 a month, 100\.00 used, resets at \S+-01T00:00:00.000Z$/m,
    );
    expect(shown).toMatch(/^USD {2}150\.00 a day, 100\.00 used, resets at /m);
    expect(await payer.ask('too much')).toMatchObject({ body: { code: 'limit_exceeded' } });
    // Moves the first payout's acceptance to yesterday or to the last month.
    await system.database`
      update limit_uses set day = date_trunc('month', now() at time zone 'UTC')::date - 1
       where account_id = ${payer.accountId}`;
    const answer = await payer.ask('in a new month');
    expect(answer.status).toBe(201);
    await system.database`
      update limit_uses set used_minor = 20000 where account_id = ${payer.accountId}
         and day = (now() at time zone 'UTC')::date`;
    await system.database`
      delete from limit_uses where account_id = ${payer.accountId}
         and day < date_trunc('month', now() at time zone 'UTC')::date`;
  });

  it('is not recorded for an account without limits', async () => {
    const payer = await openPayer(system);
    await untilStatus(payer.client, await payer.send('unlimited'), 'settled');
    expect(
      await system.database`select from limit_uses where account_id = ${payer.accountId}`,
    ).toHaveLength(0);
    const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
    await showLimits(called(system, payer.accountId));
    expect(log.mock.calls.flat()).toEqual(['No limits.']);
    log.mockRestore();
  });
});

describe('an operator', () => {
  it('can set a limit below what is used, change a single limit, and end it', async () => {
    const payer = await openPayer(system);
    await payer.send('used');
    await limit(payer.accountId, { day: '50', month: '1000' });
    expect(await payer.ask('refused', { amount: '200' })).toMatchObject({
      body: { expected: 'at most 0.00 USD, the remainder of the limit of 50.00 USD a day' },
    });
    const shown = await limit(payer.accountId, { day: 'none' });
    expect(shown).toContain('1,000.00 a month, 100.00 used');
    expect(shown).not.toContain('a day');
    expect(await payer.ask('taken', { amount: '200' })).toMatchObject({ status: 201 });
    expect(await limit(payer.accountId, { month: 'none' })).toBe('No limits.');
    expect(await used(payer.accountId)).toBeUndefined();
    const lines = await system.database`
      select command from operator_actions where subject_id = ${payer.accountId} order by id`;
    expect(lines.map(({ command }) => command)).toEqual([
      { kind: 'limits set', currency: 'USD', day: '50', month: '1000' },
      { kind: 'limits set', currency: 'USD', day: 'none' },
      { kind: 'limits set', currency: 'USD', month: 'none' },
    ]);
  });

  it.each([
    [{}, '--payout, --day or --month is missing.'],
    [
      { day: '0' },
      '--day expects none, or a sum of USD above zero, such as 10.00; USD has 2 decimals.',
    ],
    [{ month: '1.001' }, '--month expects none, or a sum of USD'],
    [{ payout: '9'.repeat(20) }, '--payout expects none, or a sum of USD'],
    [{ payout: '20', day: '10' }, 'at most that of a day'],
    [{ day: '20', month: '10' }, 'at most that of a month'],
    [{ payout: '20', month: '10' }, 'at most that of a day'],
    [{ day: '20', destination: 'EURO' }, '--destination expects an ISO 4217 code.'],
  ] as const)('does not set %j', async (flags, message) => {
    const { account } = await createTestAccount(system.database);
    await expect(limit(account.id, flags)).rejects.toThrow(message);
    expect(
      await system.database`select from operator_actions where subject_id = ${account.id}`,
    ).toHaveLength(0);
  });

  it('is the only role that can set limits', async () => {
    const { account } = await createTestAccount(system.database);
    const none = { destination: null, payoutMinor: null, dayMinor: 1n, monthMinor: null };
    const set = setLimits(system.worker, { ...none, accountId: account.id, currency: 'USD' });
    await expect(set).rejects.toMatchObject({ code: '42501' });
    const raised = system.worker`update account_limits set day_minor = 1`;
    await expect(raised).rejects.toMatchObject({ code: '42501' });
  });
});

it('a key that may only send payouts learns that a limit is exceeded, not which amount', async () => {
  const payer = await openBatchPayer(system, 100_000n);
  await limit(payer.accountId, { day: '50' });
  const key = await addApiKey(system.database, payer.accountId, { scopes: ['payouts:create'] });
  const form = payer.item('too much', { amount: '5001' });
  const answer = await createClient(system.apiUrl, key)('POST /v1/payouts', { form });
  expect(answer).toMatchObject({ status: 422, body: { code: 'limit_exceeded' } });
  expect(JSON.stringify(answer.body)).not.toContain('50.00 USD');
  const { body } = await payer.client(`GET /v1/payouts/${textOf(answer, 'payout')}`);
  expect(body).toMatchObject({
    status_reason_text: 'A limit on what the account sends would be exceeded.',
  });
});

describe('a new beneficiary', () => {
  /** Runs `corridor limits new-payee` for USD, and returns its output. */
  async function delayNew(accountId: string, flags: Readonly<Record<string, string>>) {
    const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
    try {
      await changePayeeDelay(called(system, accountId, { currency: 'USD', ...flags }));
      return log.mock.calls.flat().join('\n');
    } finally {
      log.mockRestore();
    }
  }

  /** Makes all beneficiaries of the account a day and a minute older. */
  const aDayLater = (accountId: string) => system.database`
    update beneficiaries set created_at = created_at - interval '1441 minutes',
           updated_at = updated_at - interval '1441 minutes'
     where account_id = ${accountId}`;

  it('receives no more than the configured amount until it is a day old', async () => {
    const { client, accountId, ask, send } = await openPayer(system);
    expect(await delayNew(accountId, { above: '50.00' })).toContain('50.00 a payout');
    const refused = await ask('Too much', { amount: '5001' });
    expect(refused.body).toMatchObject({
      code: 'limit_exceeded',
      param: 'amount',
      expected: expect.stringMatching(/^at most 50\.00 USD until 20\d\d-/),
      received: '50.01 USD',
    });
    expect((await ask('As much', { amount: '5000' })).status).toBe(201);
    await aDayLater(accountId);
    await send('A day later');
    const [stored] = await system.database<{ id: string }[]>`
      select id from beneficiaries where account_id = ${accountId}`;
    const id = stored?.id ?? '';
    await client(`POST /v1/beneficiaries/${id}`, { json: { name: 'Ada King' } });
    expect((await ask('Updated')).body).toMatchObject({ code: 'limit_exceeded' });
    const item = { source_currency: 'USD', amount: 10_000, beneficiary: id };
    const preview = await client('POST /v1/batches', {
      json: { payouts: [item, { ...item, amount: 1_000 }], validate_only: true },
    });
    expect(preview.body).toMatchObject({ counts: { accepted: 1, refused: 1 } });
    await delayNew(accountId, { above: 'none' });
    await send('Without a rule');
  });

  it('is limited in decisions that have begun, once they hold the balance', async () => {
    const { accountId, ask } = await openPayer(system);
    const { asked, changed } = await transaction(system.database, async (sql) => {
      await sql`select from ledger_balances where account_id = ${accountId} for update`;
      const asked = ask('Begun before', { amount: '5001' });
      await untilLockWaits(system.database, 'the decision waits for the balance', 3_000);
      const changed = delayNew(accountId, { above: '50.00' });
      await eventually('the rule is stored', 3_000, async () => {
        const rules = await findPayeeDelays(system.database, accountId);
        return rules.length > 0 ? rules : undefined;
      });
      return { asked, changed };
    });
    expect((await asked).body).toMatchObject({ code: 'limit_exceeded', received: '50.01 USD' });
    expect(await changed).toContain('50.00 a payout');
  });

  it('says to a key that may not read how long its payouts wait', async () => {
    const payer = await openBatchPayer(system, 100_000n);
    await delayNew(payer.accountId, { above: '0' });
    const key = await addApiKey(system.database, payer.accountId, { scopes: ['payouts:create'] });
    const form = payer.item('too early');
    const answer = await createClient(system.apiUrl, key)('POST /v1/payouts', { form });
    expect(answer.body['code']).toBe('limit_exceeded');
    expect(answer.body['detail']).toContain("until the beneficiary's details are 24 hours old.");
  });

  it('has its limit listed among the account’s limits', async () => {
    const { client, accountId } = await openPayer(system);
    expect((await client('GET /v1/limits')).body).toMatchObject({ data: [] });
    await limit(accountId, { payout: '400.00', day: '900.00' });
    expect(await delayNew(accountId, { above: '0', hours: '1' })).toContain(
      'added or updated less than an hour ago',
    );
    expect(await delayNew(accountId, { above: '0', hours: '48' })).toContain('48 hours ago');
    const unused = { used: null, left: null, resets_at: null };
    expect((await client('GET /v1/limits')).body['data']).toMatchObject([
      { type: 'payout', currency: 'USD', limit: '400.00', ...unused, hours: null },
      { type: 'day', limit: '900.00', used: '0.00', left: '900.00' },
      { type: 'new_payee', limit: '0.00', ...unused, hours: 48 },
    ]);
  });

  it.each([
    [{ above: '-1' }, '--above expects none, or a sum of USD'],
    [{ above: '1.234' }, '--above expects none, or a sum of USD'],
    [{ above: '1', hours: '721' }, '--hours expects a number of hours, 1 to 720'],
    [{ above: '1', hours: '0' }, '--hours expects'],
    [{}, '--above is missing'],
  ])('is not delayed by the invalid flags %j', async (flags, message) => {
    const { accountId } = await openPayer(system);
    await expect(delayNew(accountId, flags)).rejects.toThrow(message);
  });
});
