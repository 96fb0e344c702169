import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { accept } from '../../src/activities/acceptance.js';
import { startRates } from '../../src/activities/maintenance.js';
import { decideWaitingRate, listRates, useProvider } from '../../src/cli/rates.js';
import { insertAccount } from '../../src/db/accounts.js';
import { exactlyOne, type Sql, transaction } from '../../src/db/client.js';
import { findPayoutById, insertPayout, type PayoutRow } from '../../src/db/payouts.js';
import { findQuote } from '../../src/db/quotes.js';
import {
  currentRates,
  decideRate,
  listPastRates,
  listWaitingRates,
  midOf,
  pinProvider,
  positionOfRate,
  type RateProvider,
  storeRates,
} from '../../src/db/rates.js';
import { chunkDriver } from '../../src/domain/batch.js';
import { crossMid, formatRate } from '../../src/domain/fx.js';
import { createRails } from '../../src/rails/registry.js';
import { ecbProvider } from '../../src/rates/ecb.js';
import type { RateSource } from '../../src/rates/rateSource.js';
import { referenceSource } from '../../src/rates/reference.js';
import { openPlanReader } from '../assertions/plans.js';
import { QuietRail } from '../fakes/quietRail.js';
import { called, environmentOf, signedBy } from '../fixtures/operators.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { rateMaximumAgeMs, requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  untilLockWaits,
} from '../servers/database.js';

const minuteMs = 60_000;
const dayMs = 24 * 60 * minuteMs;
const by = signedBy('ada');
/** The same signature as it is stored. */
const byAda = { operator: 'ada', reason: by.reason };

let test: TestDatabase;

beforeAll(async () => {
  test = await createTestDatabase({ hasRates: false });
});
afterAll(() => test.drop());

/** Each test begins without rates, provider or accounts. Triggers otherwise prevent that. */
beforeEach(() =>
  transaction(test.database, async (sql) => {
    await sql`select set_config('session_replication_role', 'replica', true)`;
    await sql`create temp table kept on commit drop as table terms`;
    await sql`truncate rates, rate_provider, accounts cascade`;
    await sql`insert into terms overriding system value table kept`;
  }),
);

const ago = (ms: number) => new Date(Date.now() - ms);

type Figures = Readonly<Record<string, string>>;

/** Stores the provider's figures, by default with the current time. */
function store(figures: Figures, asOf = new Date()) {
  const perEuro = new Map(Object.entries({ EUR: '1', ...figures }));
  return storeRates(test.database, ecbProvider, { asOf, perEuro });
}

/** The rates that prices are calculated from. */
async function usable(maximumAgeMs = dayMs): Promise<Figures> {
  const rates = await currentRates(test.database, maximumAgeMs);
  return Object.fromEntries(rates.map((rate) => [rate.currency, rate.perEuro]));
}

async function providersInUse(): Promise<readonly string[]> {
  const rates = await currentRates(test.database, dayMs);
  return [...new Set(rates.map(({ provider }) => provider))];
}

async function waitingId(currency: string): Promise<string> {
  const waiting = await listWaitingRates(test.database);
  return exactlyOne(waiting.find((rate) => rate.currency === currency)).id.toString();
}

describe('rates have one provider', () => {
  it('which is the first to store some: another one is refused', async () => {
    await store({ USD: '1.16' }, ago(2 * minuteMs));
    const refused = storeRates(test.database, referenceSource, await referenceSource.fetch());
    await expect(refused).rejects.toThrow(
      'rates of corridor-reference-2026-11-20 are refused, those of ecb are in use',
    );
    expect(await usable()).toEqual({ EUR: '1', USD: '1.16' });
    expect(await test.database`select from rates where provider <> 'ecb'`).toHaveLength(0);
    await store({ USD: '1.17' });
    expect(await usable()).toEqual({ EUR: '1', USD: '1.17' });
  });

  it('even if two store rates at the same time', async () => {
    const table = await referenceSource.fetch();
    const both = await Promise.allSettled([
      store({ USD: '1.16' }),
      storeRates(test.database, referenceSource, table),
    ]);
    expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(await providersInUse()).toHaveLength(1);
  });

  it('until a person chooses another, whose rates are never mixed with the old ones', async () => {
    const table = await referenceSource.fetch();
    await storeRates(test.database, referenceSource, table);
    await pinProvider(test.database, ecbProvider, by);
    expect(await usable()).toEqual({});
    await store({ USD: '1.17' }, ago(minuteMs));
    expect(await usable()).toEqual({ EUR: '1', USD: '1.17' });
    await expect(storeRates(test.database, referenceSource, table)).rejects.toThrow('are refused');
    expect(await test.database`select provider, operator, reason from rate_provider`).toEqual([
      { provider: 'ecb', ...byAda },
    ]);
    // Switches back before the provider has published anything new.
    await pinProvider(test.database, referenceSource, by);
    expect(await providersInUse()).toEqual([referenceSource.provider]);
    expect(await usable()).toEqual(Object.fromEntries(table.perEuro));
  });
});

describe('figures for tests and live accounts', () => {
  it('exclude each other: figures for tests are refused where an account is live', async () => {
    await createTestAccount(test.database, { mode: 'live', funds: {} });
    const table = await referenceSource.fetch();
    const refusal = 'are for tests, and there are live accounts';
    await expect(storeRates(test.database, referenceSource, table)).rejects.toThrow(refusal);
    await expect(pinProvider(test.database, referenceSource, by)).rejects.toThrow(refusal);
    expect(await usable()).toEqual({});
    await store({ USD: '1.16' });
    await expect(storeRates(test.database, referenceSource, table)).rejects.toThrow(refusal);
    expect(await providersInUse()).toEqual(['ecb']);
  });

  it('exclude each other: a live account is refused where figures for tests are in use', async () => {
    await storeRates(test.database, referenceSource, await referenceSource.fetch());
    const open = () => createTestAccount(test.database, { mode: 'live', funds: {} });
    await expect(open()).rejects.toThrow('the rates in use are figures for tests');
    await createTestAccount(test.database);
    await pinProvider(test.database, ecbProvider, by);
    expect((await open()).account.mode).toBe('live');
  });

  const live = { mode: 'live', name: 'Test', apiVersion: '2026-06-01' } as const;

  it.each([
    {
      late: 'a provider of figures for tests',
      first: (sql: Sql) => insertAccount(sql, live),
      second: async () => storeRates(test.worker, referenceSource, await referenceSource.fetch()),
      refusal: 'are for tests, and there are live accounts',
    },
    {
      late: 'a live account',
      first: (sql: Sql) => sql`
        insert into rate_provider (provider, is_for_tests) values ('figures', true)`,
      second: () => insertAccount(test.database, live),
      refusal: 'the rates in use are figures for tests',
    },
  ])('exclude each other at the same moment: $late is refused if it is second', async (of) => {
    let waiting: Promise<unknown> | undefined;
    await transaction(test.database, async (sql) => {
      await of.first(sql);
      waiting = of.second();
      waiting.catch(() => undefined);
      await untilLockWaits(test.database, 'the second waits for the first', 5_000);
    });
    await expect(waiting).rejects.toThrow(of.refusal);
  });
});

describe('a rate from the future', () => {
  it('is refused and does not hold up those that follow', async () => {
    const tomorrow = store({ USD: '1.16' }, ago(-dayMs));
    await expect(tomorrow).rejects.toThrow('rate_from_the_future');
    expect(await usable()).toEqual({});
    await store({ USD: '1.17' });
    await expect(store({ USD: '1.18' }, ago(-6 * minuteMs))).rejects.toThrow();
    expect(await usable()).toEqual({ EUR: '1', USD: '1.17' });
  });

  it('may be ahead by a few minutes, as clocks may be', async () => {
    await store({ USD: '1.16' }, ago(-4 * minuteMs));
    expect(await usable()).toEqual({ EUR: '1', USD: '1.16' });
  });
});

describe('a rate that jumps', () => {
  it.each([
    ['rises by 10 %', '110', true],
    ['falls by 10 %', '90', true],
    ['rises by more', '110.0000000001', false],
    ['falls by more', '89.9999999999', false],
    ['is ten times too large', '1000', false],
    ['is ten times too small', '10', false],
  ])('%s, to %s: is used at once: %s', async (_, next, isUsed) => {
    await store({ JPY: '100', USD: '1.16' }, ago(minuteMs));
    await store({ JPY: next, USD: '1.17' });
    // The other currencies are updated: none of them waits for this one.
    expect(await usable()).toEqual({ EUR: '1', USD: '1.17', JPY: isUsed ? next : '100' });
    const waiting = await listWaitingRates(test.database);
    expect(
      waiting.map(({ currency, perEuro, lastPerEuro }) => [currency, perEuro, lastPerEuro]),
    ).toEqual(isUsed ? [] : [['JPY', next, '100']]);
  });

  it('leaves the previous one in use until that is too old, and then none', async () => {
    await store({ USD: '1.16' }, ago(30 * minuteMs));
    await store({ USD: '11.6' });
    expect(await usable(31 * minuteMs)).toEqual({ EUR: '1', USD: '1.16' });
    expect(await usable(29 * minuteMs)).toEqual({ EUR: '1' });
    const rates = await currentRates(test.database, 29 * minuteMs);
    expect(midOf(rates, 'USD', 'EUR')).toBeUndefined();
  });

  it('is not accepted because it repeats for days', async () => {
    await store({ USD: '1.16' }, ago(5 * dayMs));
    for (const days of [4, 3, 2, 1]) await store({ USD: '11.6' }, ago(days * dayMs));
    expect(await usable(30 * dayMs)).toMatchObject({ USD: '1.16' });
    expect(await listWaitingRates(test.database)).toHaveLength(1);
  });

  it('is used once a person has accepted it, and the next is compared with it', async () => {
    await store({ USD: '1.16' }, ago(3 * minuteMs));
    await store({ USD: '1.40' }, ago(2 * minuteMs));
    const id = await waitingId('USD');
    expect(await decideRate(test.database, id, 'accepted', by)).toBe(true);
    expect(await usable()).toMatchObject({ USD: '1.40' });
    expect(await listWaitingRates(test.database)).toEqual([]);
    await store({ USD: '1.41' }, ago(minuteMs));
    expect(await usable()).toMatchObject({ USD: '1.41' });
    const kept = await test.database`
      select rate_id::text, outcome, operator, reason from rate_decisions`;
    expect(kept).toEqual([{ rateId: id, outcome: 'accepted', ...byAda }]);
    // A decision is made once, and not after a newer rate.
    expect(await decideRate(test.database, id, 'accepted', by)).toBe(false);
  });

  it('is never used once a person has rejected it, however often it is read', async () => {
    const published = ago(minuteMs);
    await store({ USD: '1.16' }, ago(2 * minuteMs));
    await store({ USD: '1.40' }, published);
    expect(await decideRate(test.database, await waitingId('USD'), 'rejected', by)).toBe(true);
    expect(await store({ USD: '1.40' }, published)).toEqual([]);
    expect(await usable()).toMatchObject({ USD: '1.16' });
    // The next publication needs a new decision.
    expect(await store({ USD: '1.40' })).toMatchObject([{ currency: 'USD', perEuro: '1.40' }]);
  });

  it('no longer waits when the next one has not jumped', async () => {
    await store({ USD: '1.16' }, ago(2 * minuteMs));
    await store({ USD: '1.40' }, ago(minuteMs));
    const id = await waitingId('USD');
    expect(await store({ USD: '1.17' })).toEqual([]);
    expect(await decideRate(test.database, id, 'accepted', by)).toBe(false);
    expect(await usable()).toMatchObject({ USD: '1.17' });
  });

  it('is also detected between the rates of two providers', async () => {
    await storeRates(test.database, referenceSource, await referenceSource.fetch());
    await pinProvider(test.database, ecbProvider, by);
    await store({ USD: '11.612', GBP: '0.88' });
    expect(await usable()).toEqual({ EUR: '1', GBP: '0.88' });
    expect(await listWaitingRates(test.database)).toMatchObject([{ currency: 'USD' }]);
  });
});

describe('every rate', () => {
  it('is kept once, with its provider, its time and its arrival', async () => {
    const published = ago(dayMs);
    await store({ USD: '1.16' }, published);
    await store({ USD: '1.160' }, published);
    await store({ USD: '1.17' });
    // A late table is ignored.
    await store({ USD: '1.15' }, ago(2 * dayMs));
    const kept = await test.database`
      select per_euro::text, provider, as_of, arrived_at > now() - interval '1 minute' as is_new
        from rates where currency = 'USD' order by id`;
    expect(kept).toMatchObject([
      { perEuro: '1.16', provider: 'ecb', asOf: published, isNew: true },
      { perEuro: '1.17', provider: 'ecb' },
    ]);
    expect(await usable()).toMatchObject({ USD: '1.17' });
  });

  it('is in use after it is read again, even if its copy was deleted', async () => {
    const published = ago(minuteMs);
    await store({ USD: '1.16' }, published);
    await test.database`delete from current_rates`;
    await store({ USD: '1.16' }, published);
    expect(await usable()).toEqual({ EUR: '1', USD: '1.16' });
  });

  it('replaces one with the same time, as a correction', async () => {
    const published = ago(minuteMs);
    await store({ USD: '1.16' }, published);
    await store({ USD: '1.17' }, published);
    expect(await usable()).toMatchObject({ USD: '1.17' });
    // The correction is taken back.
    await store({ USD: '1.16' }, published);
    expect(await usable()).toMatchObject({ USD: '1.16' });
  });

  it('no longer waits when a correction to it is taken back under the same time', async () => {
    const published = ago(minuteMs);
    await store({ USD: '1.16' }, published);
    await store({ USD: '11.6' }, published);
    const id = await waitingId('USD');
    expect(await store({ USD: '1.16' }, published)).toEqual([]);
    expect(await decideRate(test.database, id, 'accepted', by)).toBe(false);
    expect(await usable()).toMatchObject({ USD: '1.16' });
  });

  it.each([
    'update rates set per_euro = 2',
    'delete from rates',
    'truncate rates cascade',
    "update rate_decisions set outcome = 'accepted'",
    'delete from rate_decisions',
    'truncate rate_decisions',
  ])('cannot be changed: %s', async (statement) => {
    await store({ USD: '1.16' }, ago(minuteMs));
    await store({ USD: '1.40' });
    await decideRate(test.database, await waitingId('USD'), 'rejected', by);
    await expect(test.database.unsafe(statement)).rejects.toThrow('append-only');
  });
});

describe('past mid rates', () => {
  type Query = Partial<Parameters<typeof listPastRates>[1]>;
  const page = { limit: 20, toward: 'older', from: null } as const;
  const read = (query: Query = {}, source = 'USD', destination = 'GBP') =>
    listPastRates(test.database, { ...page, ...query }, source, destination);
  const figures = async (query: Query = {}, source = 'USD', destination = 'GBP') =>
    (await read(query, source, destination)).rows.map((row) =>
      [row.sourcePerEuro, row.destinationPerEuro].join(' '),
    );

  it('are one for two rates stored together, and one for each rate stored alone', async () => {
    await store({ USD: '1.10', GBP: '0.80' }, ago(5 * minuteMs));
    await store({ GBP: '0.81' }, ago(4 * minuteMs));
    await store({ USD: '1.11' }, ago(3 * minuteMs));
    await store({ GBP: '0.82', JPY: '180', USD: '1.12' }, ago(2 * minuteMs));
    // A correction: the same time, stored later.
    await store({ GBP: '0.83', USD: '1.12' }, ago(minuteMs));
    const newest = ['1.12 0.83', '1.12 0.82', '1.11 0.81', '1.10 0.81', '1.10 0.80'];
    expect(await figures()).toEqual(newest);
    const turned = newest.map((pair) => pair.split(' ').reverse().join(' '));
    expect(await figures({}, 'GBP', 'USD')).toEqual(turned);
    expect(await figures({}, 'JPY', 'USD')).toEqual(['180 1.12', '180 1.12']);
    expect(await figures({}, 'USD', 'USD')).toEqual([]);
    expect(await figures({}, 'USD', 'CHF')).toEqual([]);
    const [first] = (await read({ limit: 1 })).rows;
    const kept = await test.database`select id, currency, as_of, arrived_at from rates
      where id in (${String(first?.sourceId)}, ${String(first?.destinationId)}) order by id`;
    const [gbp, usd] = ['GBP', 'USD'].map((name) => kept.find(({ currency }) => currency === name));
    expect(first).toMatchObject({
      provider: 'ecb',
      id: kept.at(-1)?.['id'],
      asOf: gbp?.['asOf'],
      arrivedAt: gbp?.['arrivedAt'],
      sourceId: usd?.['id'],
      sourceAsOf: usd?.['asOf'],
      destinationId: gbp?.['id'],
      destinationAsOf: gbp?.['asOf'],
    });
  });

  it('come in pages of any size, in both directions and within bounds', async () => {
    for (const minutes of [9, 8, 7, 6, 5, 4, 3]) {
      const [usd, gbp] = [{ USD: `1.1${9 - minutes}` }, { GBP: `0.8${9 - minutes}` }];
      // A table may list its currencies in any order.
      const both = minutes % 2 === 0 ? { ...usd, ...gbp } : { ...gbp, ...usd };
      await store(minutes % 3 === 0 ? usd : both, ago(minutes * minuteMs));
    }
    const all = (await read()).rows;
    expect(all.map(({ sourcePerEuro }) => sourcePerEuro)).toEqual([
      '1.16',
      '1.15',
      '1.14',
      '1.13',
      '1.12',
      '1.11',
    ]);
    for (const limit of [1, 2, 3, 4]) {
      for (const toward of ['older', 'newer'] as const) {
        for (const [index, row] of all.entries()) {
          const from = { at: row.asOf, id: row.id.toString() };
          const { rows, hasMore } = await read({ limit, toward, from });
          const beyond = toward === 'older' ? all.slice(index + 1) : all.slice(0, index);
          const expected = toward === 'older' ? beyond.slice(0, limit) : beyond.slice(-limit);
          expect([rows, hasMore]).toEqual([expected, beyond.length > limit]);
        }
      }
    }
    const [, second, third] = all;
    const created = { gte: third?.asOf, lt: second?.asOf };
    expect((await read({ created })).rows).toEqual([third]);
  });

  it('use accepted rates only, and one provider each', async () => {
    await storeRates(test.database, referenceSource, {
      asOf: ago(9 * minuteMs),
      perEuro: new Map([
        ['USD', '1.15'],
        ['GBP', '0.85'],
      ]),
    });
    await pinProvider(test.database, ecbProvider, by);
    await store({ USD: '1.16' }, ago(5 * minuteMs));
    await store({ USD: '1.17' }, ago(4 * minuteMs));
    expect(await figures({ limit: 1 })).toEqual(['1.15 0.85']);
    await store({ GBP: '0.87', USD: '1.40' }, ago(3 * minuteMs));
    expect(await figures()).toEqual(['1.17 0.87', '1.15 0.85']);
    expect(
      await positionOfRate(test.database, await waitingId('USD'), ['USD', 'GBP']),
    ).toBeUndefined();
    await decideRate(test.database, await waitingId('USD'), 'rejected', by);
    expect(await figures()).toEqual(['1.17 0.87', '1.15 0.85']);
    await store({ USD: '1.41' }, ago(2 * minuteMs));
    const id = await waitingId('USD');
    await decideRate(test.database, id, 'accepted', by);
    expect(await figures()).toEqual(['1.41 0.87', '1.17 0.87', '1.15 0.85']);
    expect(await positionOfRate(test.database, id, ['USD', 'GBP'])).toMatchObject({ id });
  });

  it('are read from a few rows of a large table', async () => {
    await store({ USD: '1.10', GBP: '0.80' }, ago(minuteMs));
    await transaction(test.database, async (sql) => {
      await sql`select set_config('session_replication_role', 'replica', true)`;
      await sql`
        insert into rates (currency, per_euro, provider, as_of, arrived_at)
        select currency, 1 + i % 7, 'ecb', at, at from generate_series(1, 20000) i
         cross join lateral (values (now() - make_interval(mins => 20002 - i))) t (at)
         cross join unnest('{USD,GBP,JPY}'::text[]) currency`;
    });
    await test.database`analyze rates`;
    const reader = await openPlanReader(test.url);
    try {
      const cursors = [null, { at: ago(5 * dayMs), id: '1' }] as const;
      const queries = (['older', 'newer'] as const).flatMap((toward) =>
        cursors.map((from) => ({ ...page, from, toward })),
      );
      for (const each of queries) {
        const [plan] = await reader.plansOf(() =>
          listPastRates(reader.database, each, 'USD', 'GBP'),
        );
        // Decisions of people are few, and are read as a whole.
        expect(plan?.wholeTables, plan?.text).not.toContain('rates');
        expect(plan?.rowsRead, plan?.text).toBeLessThanOrEqual(15 * page.limit);
      }
    } finally {
      await reader.close();
    }
  });
});

describe('the rates that a payout names', () => {
  const deps = { rails: createRails([new QuietRail()]), rateMaximumAgeMs };
  const decideOn = (driver: string, ids: readonly string[]) =>
    transaction(test.database, (sql) => accept(sql, deps, { driver, ids, workflowAgeMs: 0 }));
  let accountId: string;

  beforeEach(async () => {
    await store({ USD: '1.1612', GBP: '0.8794' }, ago(10 * minuteMs));
    accountId = (await createTestAccount(test.database)).account.id;
  });

  /** The mid rate, recalculated from only the rate IDs that a quote or payout names. */
  async function recomputed(named: {
    readonly sourceRateId: bigint | null;
    readonly destinationRateId: bigint | null;
  }): Promise<string> {
    const perEuro = async (id: bigint | null) => {
      const [rate] = await test.database<{ perEuro: string }[]>`
        select per_euro::text from rates where id = ${id}`;
      return exactlyOne(rate).perEuro;
    };
    const { sourceRateId, destinationRateId } = named;
    return formatRate(crossMid(await perEuro(sourceRateId), await perEuro(destinationRateId)));
  }

  async function payoutOf(id: string): Promise<PayoutRow> {
    const row = exactlyOne(await findPayoutById(test.database, id));
    expect(row.status).toBe('processing');
    return row;
  }

  const oldMid = formatRate(crossMid('1.1612', '1'));
  const newMid = formatRate(crossMid('1.17', '1'));

  it('with a quote are those of the quote, even if there are newer ones', async () => {
    const { id, quoteId } = await requestPayout(test.database, accountId);
    const quote = exactlyOne(await findQuote(test.database, accountId, quoteId ?? ''));
    expect([await recomputed(quote), quote.mid]).toEqual([oldMid, oldMid]);
    await store({ USD: '1.17', GBP: '0.88' });
    await decideOn(id, [id]);
    const payout = await payoutOf(id);
    expect([await recomputed(payout), payout.mid]).toEqual([oldMid, oldMid]);
    const { rateProvider, rateAsOf } = quote;
    expect(payout).toMatchObject({ rateProvider, rateAsOf });
  });

  async function requestLive(source: string, destination: string): Promise<string> {
    const { id, beneficiaryId, ...quoted } = await requestPayout(test.database, accountId);
    const live = { ...quoted, beneficiaryId, id: `${id}live`, driver: `${id}live`, quoteId: null };
    await insertPayout(test.database, {
      ...live,
      sourceCurrency: source,
      destinationCurrency: destination,
      fixedSide: 'source',
      amount: 10_000n,
    });
    return live.id;
  }

  it('at the live rate are the current ones, and it keeps them', async () => {
    const id = await requestLive('USD', 'EUR');
    // Only one of the two rates is new: the mid rate is as old as the other one.
    const published = ago(10 * minuteMs);
    await storeRates(test.database, ecbProvider, {
      asOf: new Date(),
      perEuro: new Map([['USD', '1.17']]),
    });
    await decideOn(id, [id]);
    const payout = await payoutOf(id);
    expect([await recomputed(payout), payout.mid]).toEqual([newMid, newMid]);
    expect(payout.rateProvider).toBe('ecb');
    expect(payout.rateAsOf?.getTime()).toBeLessThan(published.getTime() + minuteMs);
    const change = test.database`update payouts set source_rate_id = 1 where id = ${id}`;
    await expect(change).rejects.toThrow('frozen');
  });

  it('at the live rate are of the age that its account may use', async () => {
    const decided = async (ages: { readonly test: number; readonly live: number }) => {
      const id = await requestLive('USD', 'EUR');
      const decision = { driver: id, ids: [id], workflowAgeMs: 0 };
      await transaction(test.database, (sql) =>
        accept(sql, { ...deps, rateMaximumAgeMs: ages }, decision),
      );
      return findPayoutById(test.database, id);
    };
    const young = await decided({ test: dayMs, live: minuteMs });
    expect(young).toMatchObject({ status: 'processing' });
    const old = await decided({ test: minuteMs, live: dayMs });
    expect(old).toMatchObject({ status: 'failed', refusal: { code: 'rate_unavailable' } });
  });

  it('at the live rate are those after the wait for its beneficiary', async () => {
    const id = await requestLive('USD', 'EUR');
    let deciding: Promise<unknown> | undefined;
    await transaction(test.database, async (sql) => {
      await sql`
        select from beneficiaries where id = (select beneficiary_id from payouts where id = ${id})
           for update`;
      deciding = decideOn(id, [id]);
      await untilLockWaits(test.database, 'the decision waits', 10_000);
      await store({ USD: '1.17' });
    });
    await deciding;
    expect((await payoutOf(id)).mid).toBe(newMid);
  });

  it('within one currency are none: there the rate is 1', async () => {
    const id = await requestLive('EUR', 'EUR');
    await decideOn(id, [id]);
    expect(await payoutOf(id)).toMatchObject({
      mid: '1',
      rateProvider: 'par',
      sourceRateId: null,
      destinationRateId: null,
    });
  });

  it('in a batch are those of its request, even if there are newer ones', async () => {
    const batchId = await requestBatch(test.database, accountId, { count: 3 });
    await store({ USD: '1.17', GBP: '0.88' });
    const items = await test.database<{ id: string }[]>`
      select id from payouts where batch_id = ${batchId}`;
    const ids = items.map(({ id }) => id);
    await decideOn(chunkDriver({ batchId, number: 0 }), ids);
    for (const id of ids) {
      const payout = await payoutOf(id);
      expect([await recomputed(payout), payout.mid]).toEqual([oldMid, oldMid]);
      expect(payout.rateProvider).toBe('ecb');
    }
    const [named] = await test.database`
      select count(*)::int from batches b, jsonb_array_elements(b.rates) n
        join rates r on r.id = (n ->> 'id')::bigint and r.currency = n ->> 'currency'
         and r.per_euro = (n ->> 'perEuro')::numeric and r.provider = n ->> 'provider'
         and r.as_of = (n ->> 'asOf')::timestamptz
       where b.id = ${batchId}`;
    expect(named).toEqual({ count: 3 });
  });
});

describe('a worker that starts', () => {
  let lines: string[];
  const start = (fetch: RateSource['fetch'], provider: RateProvider = ecbProvider) => {
    lines = [];
    const log = pino({ level: 'info' }, { write: (line: string) => lines.push(line) });
    const rateSource = { ...provider, fetch };
    return startRates({ database: test.database, rateSource, log }, dayMs);
  };
  const failing = () => Promise.reject(new Error('The ECB rates answered with status 503'));
  const publishes = (figures: Figures) => async () => ({
    asOf: new Date(),
    perEuro: new Map(Object.entries(figures)),
  });

  it('uses recent stored rates if its source fails', async () => {
    await store({ USD: '1.16' }, ago(minuteMs));
    await start(failing);
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { level: 50, err: { message: 'The ECB rates answered with status 503' } },
    ]);
    expect(await usable()).toMatchObject({ USD: '1.16' });
    await start(publishes({ USD: '1.17' }));
    expect([lines, await usable()]).toMatchObject([[], { USD: '1.17' }]);
  });

  it('does not start without any rate', async () => {
    await expect(start(failing)).rejects.toThrow('status 503');
    await store({ USD: '1.16' }, ago(2 * dayMs));
    await expect(start(failing)).rejects.toThrow('status 503');
  });

  it('does not start with another source than the one in use', async () => {
    await store({ USD: '1.16' }, ago(minuteMs));
    const other = start(publishes({ USD: '1.2' }), { ...ecbProvider, provider: 'other' });
    await expect(other).rejects.toThrow('rates of other are refused');
    expect(await usable()).toMatchObject({ USD: '1.16' });
  });

  it('does not start with figures for tests where an account is live', async () => {
    await store({ USD: '1.16' }, ago(minuteMs));
    await createTestAccount(test.database, { mode: 'live', funds: {} });
    await expect(start(() => referenceSource.fetch(), referenceSource)).rejects.toThrow(
      'are for tests',
    );
  });

  it('logs a warning about a rate that waits for a decision', async () => {
    await store({ USD: '1.16' }, ago(minuteMs));
    await start(publishes({ USD: '11.6' }));
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      {
        level: 40,
        ...{ id: await waitingId('USD'), currency: 'USD', perEuro: '11.6', lastPerEuro: '1.16' },
        msg: 'a rate jumped and waits for corridor rates accept',
      },
    ]);
  });
});

describe('corridor rates', () => {
  /** Returns the output of a command. */
  async function printed(command: () => Promise<unknown>): Promise<string> {
    const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
    try {
      await command();
      return log.mock.calls.map(([line]) => `${line}\n`).join('');
    } finally {
      log.mockRestore();
    }
  }

  it('lists waiting rates, and decides on each once', async () => {
    const { database } = test;
    await store({ USD: '1.16', GBP: '0.88' }, ago(minuteMs));
    expect(await printed(() => listRates(called({ database }, '')))).toBe(
      'No rate is waiting for a decision.\n',
    );
    await store({ USD: '1.40', GBP: '8.8' });
    const [usd, gbp] = [await waitingId('USD'), await waitingId('GBP')];
    const listed = await printed(() => listRates(called({ database }, '')));
    expect(listed).toContain(`${usd}  USD  1.40, was 1.16  as of `);
    expect(listed).toContain(`${gbp}  GBP  8.8, was 0.88  as of `);
    const reject = () => printed(() => decideWaitingRate(called({ database }, gbp), 'rejected'));
    expect(await reject()).toBe(`rejected: rate ${gbp}\n`);
    await expect(reject()).rejects.toThrow(`No rate ${gbp} is waiting`);
    await expect(decideWaitingRate(called({ database }, 'x'), 'accepted')).rejects.toThrow(
      'No rate x is waiting',
    );
    await expect(useProvider(called({ database }, 'mine'))).rejects.toThrow(
      'expects reference, ecb or table',
    );
    expect(await usable()).toEqual({ EUR: '1', USD: '1.16', GBP: '0.88' });
  });

  it('runs as a command: accept, use', async () => {
    const corridor = (...args: readonly string[]): Promise<readonly [number, string]> => {
      const main = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));
      const env = environmentOf(test.url);
      return new Promise((resolve) => {
        execFile(process.execPath, [main, 'rates', ...args], { env }, (error, stdout, stderr) => {
          resolve([error === null ? 0 : Number(error.code), stdout + stderr]);
        });
      });
    };
    const why = ['--reason', 'the market moved'] as const;
    await store({ USD: '1.16' }, ago(minuteMs));
    await store({ USD: '1.40' });
    const id = await waitingId('USD');
    const [code, text] = await corridor('accept', id);
    expect([code, text]).toEqual([2, expect.stringMatching(/^--reason is missing/)]);
    expect(await corridor('accept', id, ...why)).toEqual([0, `accepted: rate ${id}\n`]);
    expect(await usable()).toEqual({ EUR: '1', USD: '1.40' });
    await createTestAccount(test.database, { mode: 'live', funds: {} });
    // One line without a stack trace, because an impossible request is not a bug.
    expect(await corridor('use', 'reference', ...why)).toEqual([
      1,
      expect.stringMatching(/^the figures of \S+ are for tests, .*\n$/),
    ]);
    expect(await usable()).toEqual({ EUR: '1', USD: '1.40' });
    expect(await corridor('use', 'table', ...why)).toEqual([
      0,
      'in use: table. Its rates arrive once workers start with RATE_SOURCE=table.\n',
    ]);
    expect(await usable()).toEqual({});
  });
});
