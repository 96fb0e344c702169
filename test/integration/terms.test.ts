import { readdir, readFile } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { accept } from '../../src/activities/acceptance.js';
import { previewTerms, setTerms, showTerms } from '../../src/cli/terms.js';
import { connectDatabase, exactlyOne, transaction } from '../../src/db/client.js';
import { listAudit } from '../../src/db/operatorActions.js';
import { findTermsAt } from '../../src/db/terms.js';
import { chunkDriver } from '../../src/domain/batch.js';
import { grossFor } from '../../src/domain/corridor.js';
import { formatMinor } from '../../src/domain/money.js';
import { createRails } from '../../src/rails/registry.js';
import { eventually } from '../assertions/eventually.js';
import { QuietRail } from '../fakes/quietRail.js';
import { createClient, textOf, untilStatus } from '../fixtures/client.js';
import { firstTerms } from '../fixtures/corridors.js';
import { called, shown } from '../fixtures/operators.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { beneficiary, rateMaximumAgeMs } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, withoutTriggers } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

const hourMs = 60 * 60_000;
const inFuture = (ms: number) => new Date(Date.now() + ms).toISOString();

/** Returns the output of a command, or the message of its refusal. */
async function printed(command: typeof setTerms, id: string, flags = {}): Promise<string> {
  const log = vi.spyOn(console, 'log').mockReturnValue();
  try {
    await command(called(system, id, flags));
    return log.mock.calls.join('\n');
  } catch (error) {
    return error instanceof Error ? error.message : '';
  } finally {
    log.mockRestore();
  }
}

/**
 * Sets terms from a time less than a minute ahead, which no command can do. They cost ten times as
 * much, and their spread is three times as large.
 */
async function raisePrices(currency: string, from: Date, accountId: string | null = null) {
  await withoutTriggers(
    system.database,
    (sql) => sql`
      insert into terms (account_id, currency, fixed_minor, basis_points, minimum_minor,
        maximum_minor, spread_basis_points, valid_from)
      select ${accountId}, currency, fixed_minor * 10, basis_points * 10, minimum_minor * 10,
             maximum_minor, spread_basis_points * 3, ${from} from terms
       where currency = ${currency} and account_id is null order by valid_from, id limit 1`,
  );
}

/** Restores the original terms. */
afterEach(() =>
  withoutTriggers(
    system.database,
    (sql) => sql`delete from terms where valid_from > '2026-01-01T00:00:00Z'`,
  ),
);

const now = async () => {
  const [row] = await system.database<{ at: Date }[]>`select now() as at`;
  return exactlyOne(row).at;
};

const quoteForm = { source_currency: 'USD', destination_currency: 'EUR', amount: '100000' };
const deps = {
  rails: createRails([new QuietRail()]),
  rateMaximumAgeMs,
};

describe('the terms of a new database', () => {
  it('are the ones that prices are tested with', async () => {
    const rows = await system.database`
      select id, currency, fixed_minor, basis_points, minimum_minor, maximum_minor,
             spread_basis_points from terms where account_id is null order by id`;
    expect(rows).toEqual(firstTerms);
  });
});

describe('terms that change', () => {
  it('during 1,000 quotes apply to each quote by its own time', async () => {
    let moment: Date | undefined;
    const made: { at: Date; fee: unknown; id: string }[] = [];
    const isOld = ({ at }: { readonly at: Date }) => moment === undefined || at < moment;
    // At most 5,000, in case this machine answers thousands per second.
    while (made.length < 1_000 || (made.length < 5_000 && made.every(isOld))) {
      if (made.length >= 500 && moment === undefined) {
        moment = new Date((await now()).getTime() + 300);
        await raisePrices('USD', moment);
      }
      const answers = await Promise.all(
        Array.from({ length: 20 }, () => system.client('POST /v1/quotes', { form: quoteForm })),
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
       where f.valid_from <= q.created_at and s.valid_from <= q.created_at
         and q.id = any (${made.map(({ id }) => id)})`;
    expect(named).toEqual([{ count: made.length }]);
  });

  it('while a quote waits for its rates apply by its creation time', async () => {
    const moment = new Date((await now()).getTime() + 1_000);
    await raisePrices('USD', moment);
    const quotes = await transaction(system.database, async (sql) => {
      await sql`lock table current_rates in access exclusive mode`;
      const pending = Promise.all(
        [1, 2].map(() => system.client('POST /v1/quotes', { form: quoteForm })),
      );
      await eventually('the quotes wait and the moment passes', 5_000, async () => {
        const [row] = await system.database<{ waiting: number }[]>`
          select count(*)::int as waiting from pg_locks
           where relation = 'current_rates'::regclass and not granted`;
        return row?.waiting === 2 && (await now()) > moment ? true : undefined;
      });
      return { pending };
    });
    for (const answer of await quotes.pending) {
      const isOld = new Date(textOf(answer, 'created_at')) < moment;
      expect(answer.body['fee']).toBe(isOld ? 4.3 : 43);
    }
  });

  it('do not change the fees that a batch was promised at its request', async () => {
    const { account } = await createTestAccount(system.database);
    const promised = await requestBatch(system.database, account.id, { count: 2 });
    await raisePrices('USD', await now());
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
      // With a fee of 10.00, nothing is left of 10.00 USD.
      const expected =
        feeMinor === 100n
          ? { status: 'processing', feeMinor }
          : { status: 'failed', feeMinor: null };
      expect(fees).toEqual([expected, expected]);
    }
  });

  it('can be an account’s own, and then also show in its corridors and rates', async () => {
    const own = await createTestAccount(system.database, { funds: { USD: 1_000_000n } });
    await raisePrices('USD', await now(), own.account.id);
    const client = createClient(system.apiUrl, own.apiKey);
    const query = 'source_currency=USD&destination_currency=EUR';
    for (const [caller, fee, spread] of [
      [client, 43, 150],
      [system.client, 4.3, 50],
    ] as const) {
      expect((await caller('POST /v1/quotes', { form: quoteForm })).body['fee']).toBe(fee);
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
  it('is explained for a quote and its payout, even after the terms have changed', async () => {
    const quote = await system.client('POST /v1/quotes', { form: quoteForm });
    const { id } = await beneficiaryOf(system.client);
    const form = { quote: textOf(quote, 'id'), beneficiary: id };
    const payout = await system.client('POST /v1/payouts', { form });
    const explained = () =>
      Promise.all([
        system.client(`GET /v1/quotes/${textOf(quote, 'id')}/calculation`),
        system.client(`GET /v1/payouts/${textOf(payout, 'id')}/calculation`),
      ]);
    const before = await explained();
    await raisePrices('USD', await now());
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

  it('has no steps without a price, and cannot be read by another account', async () => {
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

  it('within one currency consists of the fee only', async () => {
    const form = { ...quoteForm, destination_currency: 'USD' };
    const quote = await system.client('POST /v1/quotes', { form });
    const { body } = await system.client(`GET /v1/quotes/${textOf(quote, 'id')}/calculation`);
    expect(body).toMatchObject({
      steps: [
        { step: 'fee', result: '4.30' },
        { step: 'net_amount', result: '995.70' },
        { step: 'mid_rate', result: '1', rule: '1 within one currency' },
        { step: 'rate', result: '1', rule: 'mid_rate' },
        { step: 'receive_amount', result: '995.70' },
      ],
    });
  });
});

describe('the command line', () => {
  it('schedules terms with an audit line; values without a flag stay as they would be then', async () => {
    const [first, second] = [inFuture(2 * hourMs), inFuture(4 * hourMs)];
    const sums = { fixed: '0.50', minimum: '2', maximum: '5000', 'basis-points': '35' };
    const output = await printed(setTerms, 'EUR', { from: first, ...sums });
    expect(output).toContain('fee 0.50 + 35 bp, at least 2.00, spread 50 bp, at most 5,000.00');
    expect(await printed(setTerms, 'EUR', { from: second, spread: '70' })).toMatch(
      /^EUR {2}fee 0\.50 \+ 35 bp, at least 2\.00, spread 70 bp, at most 5,000\.00 {2}from .*terms_/,
    );
    const listed = (await printed(showTerms, 'EUR')).split('\n');
    expect(listed.map((line) => /from (\S+)/.exec(line)?.[1])).toEqual([
      '2026-01-01T00:00:00.000Z',
      first,
      second,
    ]);
    const lines = await system.database`
      select subject_type, operator, reason, command, outcome from operator_actions
       where command ->> 'kind' = 'terms set' order by created_at`;
    const line = { subjectType: 'terms', operator: 'grace', reason: 'the bank was called' };
    const done = (terms = '') => ({
      ...line,
      command: { kind: 'terms set', terms },
      outcome: 'done',
    });
    expect(lines).toEqual([done(listed[1]), done(listed[2])]);
  });

  it('names the account of its own terms, by which the audit log finds them', async () => {
    const { account } = await createTestAccount(system.database);
    const flags = { from: inFuture(hourMs), account: account.id, spread: '0' };
    // With the operators' login, because the database lets its owner change terms without an audit line.
    const url = system.urls.operator;
    const database = connectDatabase({ url, poolSize: 1, applicationName: 'terms' });
    onTestFinished(() => database.end());
    const terms = await shown(() => setTerms(called({ database }, 'EUR', flags)));
    expect(terms).toMatch(`EUR for ${account.id}  fee `);
    const filter = { subject: account.id, operator: 'grace', since: undefined };
    const entries = await listAudit(database, filter);
    expect(entries.map(({ command }) => command)).toEqual([
      { kind: 'terms set', terms, account: account.id },
    ]);
  });

  it('replaces scheduled terms by others from the same moment', async () => {
    const from = inFuture(hourMs);
    await printed(setTerms, 'EUR', { from, fixed: '200' });
    await printed(setTerms, 'EUR', { from, fixed: '2' });
    const at = new Date(Date.now() + 2 * hourMs);
    const row = await findTermsAt(system.database, null, 'EUR', at);
    expect(row.fixedMinor).toBe(200n);
  });

  it('restores the previous terms at an end time, an account’s own first', async () => {
    const { account } = await createTestAccount(system.database);
    const spreadAt = async (hours: number, accountId: string | null) => {
      const at = new Date(Date.now() + hours * hourMs);
      return (await findTermsAt(system.database, accountId, 'USD', at)).spreadBasisPoints;
    };
    const own = { account: account.id };
    const promotion = { from: inFuture(2 * hourMs), until: inFuture(4 * hourMs) };
    await printed(setTerms, 'USD', { ...promotion, ...own, spread: '5' });
    await printed(setTerms, 'USD', { ...promotion, spread: '45' });
    expect(await Promise.all([1, 3, 5].map((hours) => spreadAt(hours, account.id)))).toEqual([
      50, 5, 50,
    ]);
    await printed(setTerms, 'USD', { from: inFuture(hourMs), ...own, spread: '11' });
    expect(await Promise.all([0, 1.5, 3, 5].map((hours) => spreadAt(hours, account.id)))).toEqual([
      50, 11, 5, 11,
    ]);
    expect(await Promise.all([1, 3, 5].map((hours) => spreadAt(hours, null)))).toEqual([
      50, 45, 50,
    ]);
    expect((await printed(showTerms, '', own)).split('\n')).toHaveLength(2);
    expect((await printed(showTerms, '')).split('\n')).toHaveLength(firstTerms.length + 1);
  });

  it('previews the fees of last month’s payouts, and changes nothing', async () => {
    const own = await createTestAccount(system.database, { funds: { CHF: 1_000_000n } });
    const other = await createTestAccount(system.database, { funds: { CHF: 1_000_000n } });
    await raisePrices('CHF', await now(), other.account.id);
    const settled: string[] = [];
    for (const [{ apiKey }, amount, end] of [
      [own, '100100', 'settled'],
      [own, '50000', 'settled'],
      [own, '2000', 'settled'],
      [own, '90000', 'settled'],
      [own, '3000', 'failed'],
      [other, '80000', 'settled'],
    ] as const) {
      const client = createClient(system.apiUrl, apiKey);
      const { id } = await beneficiaryOf(client);
      const reference = end === 'failed' ? 'simulate: rejected' : 'Salary';
      const form = { source_currency: 'CHF', amount, beneficiary: id, reference };
      const payout = textOf(await client('POST /v1/payouts', { form }), 'id');
      await untilStatus(client, payout, end);
      settled.push(payout);
    }
    await withoutTriggers(
      system.database,
      (sql) => sql`
        update payouts set settled_since = now() - interval '31 days' where id = ${settled[3] ?? ''}`,
    );
    const flags = { account: own.account.id, fixed: '0', 'basis-points': '33', minimum: '0.50' };
    // 4.26 (0.25 and 4.004), 2.25 and 0.80; then 3.31 (3.3033), 1.65 and 0.50.
    const expected = 'test: 3 payouts paid 7.31 CHF in fees, would pay 5.46';
    expect(await printed(previewTerms, 'CHF', flags)).toBe(expected);
    const { account: _, ...ofAll } = flags;
    expect(await printed(previewTerms, 'CHF', ofAll)).toBe(expected);
    expect(await printed(showTerms, 'CHF')).toContain('fee 0.25 + 40 bp, at least 0.80');
    expect(await printed(previewTerms, 'KWD', {})).toBe(
      'No such payout was settled in the last 30 days.',
    );
  });

  it('previews the fee of a fixed receive amount as a new price would have it', async () => {
    const { account, apiKey } = await createTestAccount(system.database, {
      funds: { NOK: 10_000_000n },
    });
    const client = createClient(system.apiUrl, apiKey);
    const { id } = await beneficiaryOf(client);
    const fixed = { source_currency: 'NOK', fixed_side: 'destination', beneficiary: id };
    const payout = await client('POST /v1/payouts', { form: { ...fixed, amount: '54321' } });
    await untilStatus(client, textOf(payout, 'id'), 'settled');
    const [row] = await system.database<{ netMinor: bigint }[]>`
      select net_minor from payouts where id = ${textOf(payout, 'id')}`;
    const { netMinor } = exactlyOne(row);
    const fee = { fixedMinor: 777n, basisPoints: 123, minimumMinor: 100n };
    const would = formatMinor(grossFor(netMinor, fee) - netMinor, 'NOK');
    const flags = { account: account.id, fixed: '7.77', minimum: '1', 'basis-points': '123' };
    expect(await printed(previewTerms, 'NOK', flags)).toMatch(new RegExp(`would pay ${would}$`));
  });

  it.each([
    ['ABC', { from: inFuture(hourMs) }, /^CURRENCY expects one of USD, /],
    ['EUR', {}, /^--from expects a time in the future, such as /],
    ['EUR', { from: '2027-01-01' }, /^--from expects a time in the future/],
    ['EUR', { from: '2027-02-31T00:00:00Z' }, /^--from expects a time in the future/],
    [
      'EUR',
      { from: inFuture(hourMs), until: inFuture(10 * 60_000) },
      /^--until expects a time after/,
    ],
    [
      'EUR',
      { from: inFuture(hourMs), fixed: '0.305' },
      /^--fixed expects a sum of EUR, such as 10\.00; EUR has 2 decimals\.$/,
    ],
    ['EUR', { from: inFuture(hourMs), spread: '1e2' }, /^--spread expects basis points, 0 to 9999/],
    [
      'EUR',
      { from: inFuture(hourMs), maximum: '0.50' },
      /^--maximum expects more than its own fee/,
    ],
    ['EUR', { from: inFuture(hourMs), maximum: '1e9' }, /^--maximum expects a sum of EUR/],
    ['EUR', { from: inFuture(hourMs), account: 'acc_none' }, /^There is no account acc_none/],
  ])('refuses %s %j', async (currency, flags, message) => {
    expect(await printed(setTerms, currency, flags)).toMatch(message);
    expect(await printed(showTerms, 'EUR')).toMatch(/^EUR[^\n]*from 2026-01-01T00:00:00.000Z \(/);
  });

  it('refuses terms that start in less than a minute', async () => {
    expect(await printed(setTerms, 'EUR', { from: inFuture(20_000) })).toMatch(
      /^Terms must start at least a minute from now/,
    );
  });
});

describe('the database', () => {
  const columns = `(currency, fixed_minor, basis_points, minimum_minor, maximum_minor,
    spread_basis_points, valid_from)`;

  it.each([
    [`update terms set spread_basis_points = 1`, /append-only/],
    [`delete from terms`, /append-only/],
    [`insert into terms ${columns} values ('USD', 0, 0, 0, 1, 0, now())`, /at least a minute/],
    [
      `insert into terms ${columns} values ('USD', 5, 0, 0, 5, 0, now() + interval '1 day')`,
      /violates check constraint/,
    ],
  ])('refuses to %s', async (statement, message) => {
    await expect(system.database.unsafe(statement)).rejects.toThrow(message);
  });

  it('measures the minute at the end of the transaction', async () => {
    const from = new Date((await now()).getTime() + 30_500);
    await expect(
      transaction(system.database, async (sql) => {
        await sql`insert into terms ${sql.unsafe(columns)} values ('USD', 0, 0, 0, 1, 0, ${from})`;
        await eventually('less than 30 seconds remain', 5_000, async () =>
          (await now()).getTime() > from.getTime() - 30_000 ? true : undefined,
        );
      }),
    ).rejects.toThrow(/at least a minute/);
  });

  it('lets only operators schedule terms, and only with an audit line', async () => {
    const statement = `insert into terms ${columns}
      values ('USD', 0, 0, 0, 1000, 0, now() + interval '1 day')`;
    for (const role of ['api', 'worker', 'operator'] as const) {
      const login = connectDatabase({
        ...{ url: system.urls[role], poolSize: 1, applicationName: 'test' },
      });
      const inserted = login.unsafe(statement).then(
        () => 'inserted',
        (error: unknown) => (error instanceof Error ? error.message : ''),
      );
      expect([role, await inserted]).toEqual([
        role,
        role === 'operator'
          ? 'terms is changed only together with the audit line of an operator with the role admin'
          : 'permission denied for table terms',
      ]);
      await login.end({ timeout: 5 });
    }
  });

  it('assigns terms to prices from before there were any', async () => {
    const older = await createTestDatabase();
    await older.database.unsafe('drop schema public cascade; create schema public');
    const folder = new URL('../../src/db/migrations/', import.meta.url);
    const files = (await readdir(folder)).sort();
    const textOfFile = (file: string) => readFile(new URL(file, folder), 'utf8');
    for (const file of files.filter((name) => name < '0012')) {
      await older.database.unsafe(await textOfFile(file));
    }
    await withoutTriggers(older.database, async (sql) => {
      await sql`insert into accounts (id, mode, name, api_version)
                values ('acc_1', 'test', 'One', '2026-06-01')`;
      await sql`
        insert into payouts (id, account_id, mode, driver, status, beneficiary_id, source_currency,
          destination_currency, amount, source_minor, fee_minor, net_minor, receive_minor,
          mid_value_minor, rate, mid, rail)
        select 'po_' || n, 'acc_1', 'test', 'po_' || n, 'sent', 'bnf_1', source, destination, 1000,
               1000, 100, 900, 800, 810, 0.89, 0.9, 'sandbox'
          from (values (1, 'USD', 'EUR'), (2, 'EUR', 'HUF'), (3, 'HUF', 'EUR'), (4, 'USD', 'USD'))
                 t (n, source, destination)`;
    });
    await older.database.unsafe(await textOfFile('0012_terms.sql'));
    const rows = await older.database`
      select f.currency as fee, s.currency as spread from payouts p
        join terms f on f.id = p.fee_terms_id left join terms s on s.id = p.spread_terms_id
       order by p.id`;
    expect(rows).toEqual([
      { fee: 'USD', spread: 'USD' },
      { fee: 'EUR', spread: 'HUF' },
      { fee: 'HUF', spread: 'HUF' },
      { fee: 'USD', spread: null },
    ]);
    await older.database`update payouts set wake_at = now()`;
    await older.drop();
  });
});
