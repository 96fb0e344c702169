import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { accept } from '../../src/activities/acceptance.js';
import { previewTerms, setTerms, showTerms } from '../../src/cli/terms.js';
import { exactlyOne, transaction } from '../../src/db/client.js';
import { chunkDriver } from '../../src/domain/batch.js';
import { createRails } from '../../src/rails/registry.js';
import { eventually } from '../assertions/eventually.js';
import { QuietRail } from '../fakes/quietRail.js';
import { createClient, textOf, untilStatus } from '../fixtures/client.js';
import { firstTerms } from '../fixtures/corridors.js';
import { called } from '../fixtures/operators.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { beneficiary, rateMaximumAgeMs } from '../fixtures/requestPayout.js';
import { createTestAccount, withoutTriggers } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

const hourMs = 60 * 60_000;
const inFuture = (ms: number) => new Date(Date.now() + ms).toISOString();

/** What the command line prints, or why it refuses. */
async function printed(command: typeof setTerms, id: string, flags = {}): Promise<string> {
  const said = vi.spyOn(console, 'log').mockReturnValue();
  try {
    await command(called(system, id, flags));
    return said.mock.calls.join('\n');
  } catch (error) {
    return error instanceof Error ? error.message : '';
  } finally {
    said.mockRestore();
  }
}

/**
 * Has other terms hold from a moment that is less than a minute ahead, which no command can. They
 * cost ten times as much and take three times the spread.
 */
async function dearerFrom(currency: string, from: Date, accountId: string | null = null) {
  await withoutTriggers(system.database, async (sql) => {
    const owned = sql`currency = ${currency} and owner = ''`;
    const [row] = await sql<{ id: bigint }[]>`
      select id from terms where ${owned} and valid_at @> ${from}::timestamptz`;
    if (accountId === null) {
      await sql`update terms set valid_at = tstzrange(lower(valid_at), ${from}) where ${owned}`;
    }
    await sql`
      insert into terms (account_id, currency, fixed_minor, basis_points, minimum_minor,
        maximum_minor, spread_basis_points, valid_at)
      select ${accountId}, currency, fixed_minor * 10, basis_points * 10, minimum_minor * 10,
             maximum_minor, spread_basis_points * 3, tstzrange(${from}, null)
        from terms where id = ${exactlyOne(row).id.toString()}::bigint`;
  });
}

/** Back to the terms of the beginning. */
afterEach(() =>
  withoutTriggers(system.database, async (sql) => {
    await sql`delete from terms where lower(valid_at) > '2026-01-01T00:00:00Z'`;
    await sql`update terms set valid_at = tstzrange(lower(valid_at), null)`;
  }),
);

const now = async () => {
  const [row] = await system.database<{ at: Date }[]>`select now() as at`;
  return exactlyOne(row).at;
};

const asked = { source_currency: 'USD', destination_currency: 'EUR', amount: '100000' };
const deps = {
  rails: createRails([new QuietRail()]),
  rateMaximumAgeMs,
};

describe('the terms of a new database', () => {
  it('are those that prices are tested with', async () => {
    const rows = await system.database`
      select id, currency, fixed_minor, basis_points, minimum_minor, maximum_minor,
             spread_basis_points from terms where account_id is null order by id`;
    expect(rows).toEqual(firstTerms);
  });
});

describe('terms that change', () => {
  it('at a moment in the middle of 1,000 quotes: each has those of its own moment', async () => {
    let moment: Date | undefined;
    const made: { at: Date; fee: unknown; id: string }[] = [];
    const isOld = ({ at }: { readonly at: Date }) => moment === undefined || at < moment;
    // At most 5,000, should this machine answer thousands a second.
    while (made.length < 1_000 || (made.length < 5_000 && made.every(isOld))) {
      if (made.length >= 500 && moment === undefined) {
        moment = new Date((await now()).getTime() + 300);
        await dearerFrom('USD', moment);
      }
      const answers = await Promise.all(
        Array.from({ length: 20 }, () => system.client('POST /v1/quotes', { form: asked })),
      );
      for (const answer of answers) {
        expect(answer.status).toBe(201);
        const at = new Date(textOf(answer, 'created_at'));
        made.push({ at, fee: answer.body['fee'], id: textOf(answer, 'id') });
      }
    }
    expect(made.every(isOld)).toBe(false);
    for (const { at, fee } of made) expect([at, fee]).toEqual([at, isOld({ at }) ? 4.3 : 43]);
    const named = await system.database<{ count: number }[]>`
      select count(*)::int from quotes q join terms f on f.id = q.fee_terms_id
        join terms s on s.id = q.spread_terms_id
       where f.valid_at @> q.created_at and s.valid_at @> q.created_at
         and q.id = any (${made.map(({ id }) => id)})`;
    expect(named).toEqual([{ count: made.length }]);
  });

  it('while a quote waits for its rates: it has those of the moment that it is dated at', async () => {
    const moment = new Date((await now()).getTime() + 1_000);
    await dearerFrom('USD', moment);
    const quotes = await transaction(system.database, async (sql) => {
      await sql`lock table current_rates in access exclusive mode`;
      const asking = Promise.all(
        [1, 2].map(() => system.client('POST /v1/quotes', { form: asked })),
      );
      await eventually('the quotes wait and the moment passes', 5_000, async () => {
        const [row] = await system.database<{ waiting: number }[]>`
          select count(*)::int as waiting from pg_locks
           where relation = 'current_rates'::regclass and not granted`;
        return row?.waiting === 2 && (await now()) > moment ? true : undefined;
      });
      return { asking };
    });
    for (const answer of await quotes.asking) {
      const isOld = new Date(textOf(answer, 'created_at')) < moment;
      expect(answer.body['fee']).toBe(isOld ? 4.3 : 43);
    }
  });

  it('do not change what a batch was promised at its request', async () => {
    const { account } = await createTestAccount(system.database);
    const promised = await requestBatch(system.database, account.id, { count: 2 });
    await dearerFrom('USD', await now());
    const later = await requestBatch(system.database, account.id, { count: 2 });
    for (const [batchId, feeMinor] of [
      [promised, 100n],
      [later, 1_000n],
    ] as const) {
      const rows = await system.database<{ id: string }[]>`
        select id from payouts where batch_id = ${batchId} order by batch_index`;
      const ids = rows.map(({ id }) => id);
      const driver = chunkDriver({ batchId, number: 0 });
      await transaction(system.worker, (sql) =>
        accept(sql, deps, { driver, ids, workflowAgeMs: 0 }),
      );
      const fees = await system.database`
        select status, fee_minor from payouts where batch_id = ${batchId}`;
      // Of 10.00 USD nothing is left after a fee of 10.00.
      const expected =
        feeMinor === 100n
          ? { status: 'processing', feeMinor }
          : { status: 'failed', feeMinor: null };
      expect(fees).toEqual([expected, expected]);
    }
  });

  it('are an account’s own where it has some, in its corridors as well', async () => {
    const own = await createTestAccount(system.database, { funds: { USD: 1_000_000n } });
    await dearerFrom('USD', await now(), own.account.id);
    const client = createClient(system.apiUrl, own.apiKey);
    const query = 'source_currency=USD&destination_currency=EUR';
    for (const [caller, fee, spread] of [
      [client, 43, 150],
      [system.client, 4.3, 50],
    ] as const) {
      expect((await caller('POST /v1/quotes', { form: asked })).body['fee']).toBe(fee);
      const data = [{ spread_basis_points: spread }];
      expect((await caller(`GET /v1/corridors?${query}`)).body).toMatchObject({ data });
      expect((await caller(`GET /v1/rates?${query}`)).body).toMatchObject({ data });
    }
    const { id } = await beneficiaryOf(client);
    const live = { source_currency: 'USD', amount: '100000', beneficiary: id };
    const payout = await client('POST /v1/payouts', { form: live });
    expect(payout.body['fee']).toBe(43);
    const preview = await client('POST /v1/batches', {
      json: { payouts: [{ ...live, amount: 100_000 }], validate_only: true },
    });
    expect(JSON.stringify(preview.body)).toContain('"43.00"');
  });
});

async function beneficiaryOf(client: TestSystem['client']) {
  const answer = await client('POST /v1/beneficiaries', { form: beneficiary });
  return { id: textOf(answer, 'id') };
}

describe('how a price was computed', () => {
  it('is explained for a quote and its payout, also after the terms have changed', async () => {
    const quote = await system.client('POST /v1/quotes', { form: asked });
    const { id } = await beneficiaryOf(system.client);
    const form = { quote: textOf(quote, 'id'), beneficiary: id };
    const payout = await system.client('POST /v1/payouts', { form });
    const explained = () =>
      Promise.all([
        system.client(`GET /v1/quotes/${textOf(quote, 'id')}/calculation`),
        system.client(`GET /v1/payouts/${textOf(payout, 'id')}/calculation`),
      ]);
    const before = await explained();
    await dearerFrom('USD', await now());
    for (const [index, answer] of (await explained()).entries()) {
      expect(answer.status).toBe(200);
      expect(answer.body).toEqual(before[index]?.body);
      expect(answer.body).toEqual(before[0].body);
      expect(answer.body).toMatchObject({
        object: 'calculation',
        steps: [
          { step: 'fee', result: '4.30', inputs: { basis_points: '40', fixed: '0.30' } },
          { step: 'net_amount', result: '995.70' },
          { step: 'mid_rate', result: quote.body['mid_rate'] },
          { step: 'rate', result: String(quote.body['rate']), inputs: { basis_points: '50' } },
          { step: 'receive_amount', result: quote.body['receive_amount'], currency: 'EUR' },
        ],
      });
    }
  });

  it('has no steps where there is no price, and is nobody else’s to read', async () => {
    const { id } = await beneficiaryOf(system.client);
    const form = { source_currency: 'USD', amount: '1', beneficiary: id };
    const refused = await system.client('POST /v1/payouts', { form });
    expect(refused.status).toBe(422);
    const [row] = await system.database<{ id: string }[]>`
      select id from payouts where beneficiary_id = ${id}`;
    const path = `GET /v1/payouts/${exactlyOne(row).id}/calculation`;
    expect((await system.client(path)).body).toEqual({ object: 'calculation', steps: [] });
    const { apiKey } = await createTestAccount(system.database);
    expect((await createClient(system.apiUrl, apiKey)(path)).status).toBe(404);
  });

  it('within one currency is the fee alone', async () => {
    const form = { ...asked, destination_currency: 'USD' };
    const quote = await system.client('POST /v1/quotes', { form });
    const { body } = await system.client(`GET /v1/quotes/${textOf(quote, 'id')}/calculation`);
    expect(body).toMatchObject({
      steps: [
        { step: 'fee', result: '4.30' },
        { step: 'net_amount', result: '995.70' },
        { step: 'mid_rate', result: '1', inputs: {} },
        { step: 'rate', result: '1', rule: 'mid_rate' },
        { step: 'receive_amount', result: '995.70' },
      ],
    });
  });
});

describe('the command line', () => {
  it('puts terms in force from a time on, signed, and until others follow', async () => {
    const [first, second] = [inFuture(2 * hourMs), inFuture(4 * hourMs)];
    expect(await printed(setTerms, 'EUR', { from: second, spread: '70' })).toMatch(
      /^EUR {2}fee 0\.30 \+ 40 bp, at least 1\.00, spread 70 bp, at most 1000000\.00 {2}from .*terms_/,
    );
    const sums = { fixed: '0.50', minimum: '2', maximum: '5000', 'basis-points': '35' };
    const said = await printed(setTerms, 'EUR', { from: first, ...sums });
    expect(said).toContain('fee 0.50 + 35 bp, at least 2.00, spread 50 bp, at most 5000.00');
    expect(said).toContain(`from ${first} until ${second}`);
    const listed = (await printed(showTerms, 'EUR')).split('\n');
    expect(listed.map((line) => /from (\S+)(?: until (\S+))?/.exec(line)?.slice(1))).toEqual([
      ['2026-01-01T00:00:00.000Z', first],
      [first, second],
      [second, undefined],
    ]);
    const lines = await system.database`
      select subject_type, operator, reason, command, outcome from operator_actions
       where command ->> 'kind' = 'terms set' order by created_at`;
    const line = { subjectType: 'terms', operator: 'grace', reason: 'the bank was called' };
    const done = { ...line, command: { kind: 'terms set', currency: 'EUR' }, outcome: 'done' };
    expect(lines).toEqual([done, done]);
  });

  it('gives an account its own for a time, after which everybody’s hold again', async () => {
    const { account } = await createTestAccount(system.database);
    const [from, until] = [inFuture(hourMs), inFuture(3 * hourMs)];
    const flags = { account: account.id, from, until, spread: '10' };
    expect(await printed(setTerms, 'USD', flags)).toContain(`from ${from} until ${until}`);
    const list = { account: account.id };
    expect(await printed(showTerms, '', list)).toContain('spread 10 bp');
    const everybody = (await printed(showTerms, '')).split('\n');
    expect(everybody).toHaveLength(firstTerms.length);
  });

  it('says what last month would have cost, and changes nothing', async () => {
    const { account, apiKey } = await createTestAccount(system.database, {
      funds: { CHF: 1_000_000n },
    });
    const client = createClient(system.apiUrl, apiKey);
    const { id } = await beneficiaryOf(client);
    for (const amount of ['100000', '50000', '2000']) {
      const form = { source_currency: 'CHF', amount, beneficiary: id };
      const payout = await client('POST /v1/payouts', { form });
      await untilStatus(client, textOf(payout, 'id'), 'settled');
    }
    const flags = { account: account.id, fixed: '0', 'basis-points': '33', minimum: '0.50' };
    // 4.25, 2.25 and 0.80; then 3.30, 1.65 and 0.50.
    const expected = '3 payouts of 30 days: fees of 7.30 CHF, would be 5.45';
    expect(await printed(previewTerms, 'CHF', flags)).toBe(expected);
    const { account: _, ...ofAll } = flags;
    expect(await printed(previewTerms, 'CHF', ofAll)).toBe(expected);
    expect(await printed(showTerms, 'CHF')).toContain('fee 0.25 + 40 bp, at least 0.80');
  });

  it.each([
    ['ABC', { from: inFuture(hourMs) }, /^Expected a currency: USD, /],
    ['EUR', {}, /^--from expects a time in UTC, such as /],
    ['EUR', { from: '2027-01-01' }, /^--from expects a time in UTC/],
    ['EUR', { from: '2027-02-31T00:00:00+01:00' }, /^--from expects a time in UTC/],
    ['EUR', { from: inFuture(0) }, /^terms hold from a time that is at least a minute ahead/],
    ['EUR', { from: inFuture(hourMs), until: inFuture(0) }, /^--until expects a later time/],
    [
      'EUR',
      { from: inFuture(hourMs), fixed: '0.305' },
      /^--fixed expects a sum of EUR, such as 1.00/,
    ],
    ['EUR', { from: inFuture(hourMs), spread: '1e2' }, /^--spread expects basis points, 0 to 9999/],
    ['EUR', { from: inFuture(hourMs), account: 'acc_none' }, /^There is no account acc_none/],
  ])('refuses %s %j', async (currency, flags, message) => {
    expect(await printed(setTerms, currency, flags)).toMatch(message);
    expect(await printed(showTerms, 'EUR')).toMatch(/^EUR[^\n]*from 2026-01-01T00:00:00.000Z \(/);
  });

  it('refuses a second change at the same moment', async () => {
    const from = inFuture(hourMs);
    await printed(setTerms, 'EUR', { from, spread: '60' });
    expect(await printed(setTerms, 'EUR', { from, spread: '70' })).toBe(
      'Other terms begin at that time.',
    );
  });
});

describe('the database', () => {
  it.each([
    [`update terms set spread_basis_points = 1`, /terms are replaced by others/],
    [`delete from terms`, /terms/],
    [`update terms set valid_at = tstzrange(lower(valid_at), now())`, /at least a minute ahead/],
    [
      `update terms set valid_at = tstzrange(now() + interval '1 hour', null)`,
      /at least a minute ahead/,
    ],
    [
      `insert into terms (currency, fixed_minor, basis_points, minimum_minor, maximum_minor,
         spread_basis_points, valid_at)
       values ('USD', 0, 0, 0, 1, 0, tstzrange(now() + interval '1 hour', null))`,
      /conflicting key value violates exclusion constraint/,
    ],
  ])('refuses to %s', async (statement, message) => {
    await expect(system.database.unsafe(statement)).rejects.toThrow(message);
  });
});
