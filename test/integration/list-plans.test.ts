import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type BalanceTransactionFilter,
  listBalanceTransactions,
} from '../../src/db/balanceTransactions.js';
import { listBatches } from '../../src/db/batches.js';
import { listBeneficiaries } from '../../src/db/beneficiaries.js';
import { transaction } from '../../src/db/client.js';
import { type EventFilter, feedEvents, listEvents } from '../../src/db/events.js';
import { type Listed, type Page, positionOf } from '../../src/db/page.js';
import { listPayouts, type PayoutFilter } from '../../src/db/payoutLists.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { openPlanReader, type PlanReader } from '../support/plans.js';

const payouts = 1_000_000;
/** One account has nine of ten payouts, a thousand others a hundred each. */
const ofTheBig = 900_000;
const page: Page = { limit: 20, toward: 'older', from: null };
/** The id of the first payout: the MD5 of its number. */
const oldest = 'po_c4ca4238a0b923820dcc509a6f75849b';
/** Seven statuses, or the balances of two currencies, of which the newest are merged. */
const mostRows = 10 * page.limit;

let test: TestDatabase;
let reader: PlanReader;

beforeAll(async () => {
  test = await createTestDatabase();
  // Rows as they end up, written without the triggers that make them step by step.
  await transaction(test.database, async (sql) => {
    await sql`select set_config('session_replication_role', 'replica', true),
                     set_config('statement_timeout', '0', true),
                     set_config('maintenance_work_mem', '512MB', true),
                     set_config('work_mem', '256MB', true)`;
    await sql.unsafe(fill);
  });
  // What was filled in one transaction is told to the planner, and marked visible, once.
  await transaction(test.database, async (sql) => {
    await sql`select set_config('statement_timeout', '0', true)`;
    await sql`analyze`;
  });
  reader = await openPlanReader(test.url);
}, 600_000);
afterAll(async () => {
  await reader.close();
  await test.drop();
});

/** Rare values are all among the oldest, where a scan of the newest never comes. */
const fill = `
  insert into accounts (id, mode, name, api_version)
    select 'acc_' || n, 'test', 'Account', '2026-06-01' from generate_series(0, 1000) n;
  create temp table made on commit drop as
    select i, 'po_' || md5(i::text) as id,
           'acc_' || case when i <= ${ofTheBig} then 0 else 1 + i % 1000 end as account_id,
           timestamptz '2026-11-21T00:00:00Z' - make_interval(secs => ${payouts} - i) as at,
           case when i <= 5 then 'returned' when i % 100 = 0 then 'failed'
                when i % 1000 = 1 then 'sent' else 'settled' end as status,
           case when i <= 5 then 'JPY' else 'USD' end as source,
           case when i <= 5 then 'KWD' when i % 3 = 0 then 'GBP' else 'EUR' end as destination,
           case when i <= 5 then 'bnf_rare' else 'bnf_' || i % 5000 end as beneficiary,
           case when i % 2 = 0 then 'Salary' when i % 100 = 7 then 'Invoice ' || i end as reference,
           case when i <= 10000 then 'bat_old' when i > 890000 and i <= 900000 then 'bat_new' end
             as batch,
           case when i <= 5 then '{"env": "test"}'::jsonb
                when i % 100 = 7 then jsonb_build_object('env', 'prod', 'order', i::text)
                else '{"env": "prod"}' end as metadata
      from generate_series(1, ${payouts}) i;
  drop index payouts_list;
  insert into payouts (id, account_id, mode, driver, status, beneficiary_id, source_currency,
      destination_currency, amount, reference, metadata, requested_at, source_minor, fee_minor,
      net_minor, receive_minor, rail, settled_at, batch_id, batch_index)
    select id, account_id, 'test', id, status, beneficiary, source, destination, 10000, reference,
           metadata, at, 10000, 100, 9900, 9000, 'sandbox', at, batch, case when batch is not null then i end
      from made;
  create index payouts_list on payouts (account_id, status, requested_at, id);
  alter table payout_terms drop constraint payout_terms_pkey;
  insert into payout_terms
    select payout_term(m.account_id, t.name, t.value), m.at, m.id
      from made m cross join lateral (
             values ('source_currency', source), ('destination_currency', destination),
                    ('beneficiary', beneficiary), ('reference', reference), ('batch', batch)
             union all select 'metadata ' || key, value from jsonb_each_text(metadata)) t (name, value)
     where t.value is not null;
  alter table payout_terms add primary key (term, requested_at, payout_id);
  insert into batches (id, account_id, status, total, open, rates, created_at, completed_at)
    select 'bat_' || i, account_id, 'completed', 10, 0, '[]', at, at from made where i > 10 and i % 10 = 0;
  insert into batches (id, account_id, status, total, open, rates, created_at)
    select 'bat_' || i, account_id, 'processing', 10, 5, '[]', at from made where i = 10;
  insert into beneficiaries (id, account_id, details, currency, created_at)
    select 'bnf_' || i, account_id, '{}', destination, at from made where i % 5 = 0;
  insert into events (id, account_id, sequence, type, payout_id, data, created_at)
    select 'evt_' || i, account_id, i, 'payout.' || status, id, '{}', at
      from made where i <= 5 or i % 10 = 1;
  insert into ledger_accounts (id, mode, account_id, kind, currency) overriding system value
    select 4 * n + k, 'test', 'acc_' || n, (array['available', 'held'])[1 + k % 2],
           (array['USD', 'USD', 'JPY', 'JPY'])[1 + k]
      from generate_series(0, 1000) n, generate_series(0, 3) k;
  insert into ledger_balances (ledger_account_id, account_id, kind, currency, amount_minor)
    select id, account_id, kind, currency, 0 from ledger_accounts;
  insert into ledger_entries (id, payout_id, kind, created_at) overriding system value
    select 2 * i + k, id, (array['accept', case when i <= 5 then 'release' else 'settle' end])[1 + k], at
      from made, generate_series(0, 1) k where i <= 5 or i % 10 = 1;
  insert into ledger_postings (entry_id, ledger_account_id, currency, amount_minor, entry_kind, created_at)
    select 2 * m.i + s.step, a.id, m.source, s.sign * 10000, (array['accept', case when m.i <= 5 then 'release' else 'settle' end])[1 + s.step], m.at
      from made m cross join (values (0, 'available', -1), (0, 'held', 1), (1, 'held', -1)) s (step, kind, sign)
      join ledger_accounts a on a.account_id = m.account_id and a.kind = s.kind and a.currency = m.source
     where m.i <= 5 or m.i % 10 = 1`;

/** Runs a list and checks how: no table as a whole, and few rows. */
async function isCheap(list: () => Promise<Listed<unknown>>, rowsWanted?: number): Promise<void> {
  let rows: readonly unknown[] = [];
  const plans = await reader.plansOf(async () => {
    ({ rows } = await list());
  });
  // The digest of a term is a statement of its own, which reads nothing.
  expect(plans.length).toBeGreaterThan(0);
  for (const plan of plans) {
    expect(plan.wholeTables, plan.text).toEqual([]);
    expect(plan.rowsRead, plan.text).toBeLessThanOrEqual(mostRows);
  }
  if (rowsWanted !== undefined) expect(rows).toHaveLength(rowsWanted);
}

const old = new Date('2026-11-09T12:00:00.000Z');

/** A filter, and how many of the big account's rows are on its first page. */
const payoutFilters: readonly (readonly [string, PayoutFilter, number])[] = [
  ['nothing', {}, 20],
  ['a common status', { status: 'settled' }, 20],
  ['a rare status', { status: 'returned' }, 5],
  ['a status that none has', { status: 'pending' }, 0],
  ['a common source currency', { sourceCurrency: 'USD' }, 20],
  ['a rare source currency', { sourceCurrency: 'JPY' }, 5],
  ['a common destination currency', { destinationCurrency: 'EUR' }, 20],
  ['a rare destination currency', { destinationCurrency: 'KWD' }, 5],
  ['a common reference', { reference: 'Salary' }, 20],
  ['a rare reference', { reference: 'Invoice 7' }, 1],
  ['a reference that none has', { reference: 'Nothing' }, 0],
  ['a beneficiary', { beneficiaryId: 'bnf_7' }, 20],
  ['a rare beneficiary', { beneficiaryId: 'bnf_rare' }, 5],
  ['a batch of long ago', { batchId: 'bat_old' }, 20],
  ['common metadata', { metadata: { env: 'prod' } }, 20],
  ['rare metadata', { metadata: { env: 'test' } }, 5],
  ['unique metadata', { metadata: { order: '7' } }, 1],
  ['times long ago', { created: { lt: old } }, 20],
  ['times to come', { created: { gt: new Date('2026-11-22T00:00:00.000Z') } }, 0],
  ['a moment', { created: { gte: old, lte: old } }, 1],
];

describe('among a million payouts, a page of an account’s', () => {
  it.each(payoutFilters)('payouts by %s reads few rows', async (_, filter, count) => {
    await isCheap(() => listPayouts(reader.database, 'acc_0', page, filter), count);
    await isCheap(() => listPayouts(reader.database, 'acc_7', page, filter));
  });

  it.each(payoutFilters)('payouts by %s goes on cheaply both ways', async (_, filter) => {
    const [row] = await reader.database<{ id: string }[]>`
      select id from payouts where account_id = 'acc_0' and requested_at <= ${old}
       order by requested_at desc limit 1`;
    const from = await positionOf(reader.database, 'payouts', 'acc_0', row?.id ?? '');
    for (const toward of ['older', 'newer'] as const) {
      const next = { ...page, toward, from: from ?? null };
      await isCheap(() => listPayouts(reader.database, 'acc_0', next, filter));
    }
  });

  it('payouts by a common term and a rare status reads few rows', async () => {
    const filter: PayoutFilter = { sourceCurrency: 'USD', status: 'returned' };
    await isCheap(() => listPayouts(reader.database, 'acc_0', page, filter), 0);
  });

  it.each<[string, EventFilter, number]>([
    ['nothing', {}, 20],
    ['a common type', { type: 'payout.settled' }, 20],
    ['a rare type', { type: 'payout.returned' }, 5],
    ['a type that none has', { type: 'batch.completed' }, 0],
    ['a payout', { payoutId: oldest }, 1],
    ['times long ago', { created: { lt: old } }, 20],
  ])('events by %s reads few rows', async (_, filter, count) => {
    await isCheap(() => listEvents(reader.database, 'acc_0', page, filter), count);
  });

  it('feed reads few rows', async () => {
    await isCheap(() => feedEvents(reader.database, 'acc_0', 450_000n, 20), 20);
  });

  it.each<[string, BalanceTransactionFilter, number]>([
    ['nothing', {}, 20],
    ['a common currency', { currency: 'USD' }, 20],
    ['a rare currency', { currency: 'JPY' }, 15],
    ['a common type', { type: 'accept' }, 20],
    ['a rare type', { type: 'release' }, 5],
    ['a type that none has', { type: 'return' }, 0],
    ['a payout', { payoutId: oldest }, 3],
    ['times long ago', { created: { lt: old } }, 20],
  ])('balance transactions by %s reads few rows', async (_, filter, count) => {
    await isCheap(() => listBalanceTransactions(reader.database, 'acc_0', page, filter), count);
  });

  it.each([
    ['nothing', {}, 20],
    ['a common status', { status: 'completed' }, 20],
    ['a rare status', { status: 'processing' }, 1],
    ['times long ago', { created: { lt: old } }, 20],
  ])('batches by %s reads few rows', async (_, filter, count) => {
    await isCheap(() => listBatches(reader.database, 'acc_0', page, filter), count);
  });

  it.each([
    ['nothing', {}, 20],
    ['a common currency', { currency: 'EUR' }, 20],
    ['a rare currency', { currency: 'KWD' }, 1],
    ['times long ago', { created: { lt: old } }, 20],
  ])('beneficiaries by %s reads few rows', async (_, filter, count) => {
    await isCheap(() => listBeneficiaries(reader.database, 'acc_0', page, filter), count);
  });
});
