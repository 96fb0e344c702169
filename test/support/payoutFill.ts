import { inject } from 'vitest';
import { transaction } from '../../src/db/client.js';
import { createTestDatabase, type TestDatabase } from './database.js';
import { onServer } from './onServer.js';

/**
 * A database of its own with a million payouts, analyzed. They are filled in once a run, by the
 * test file that wants them first, and copied for each.
 */
export async function createDatabaseOfAMillion(): Promise<TestDatabase> {
  const filled = `${inject('postgresTemplate')}_million`;
  await onServer(inject('postgresUrl'), async (admin) => {
    // Another file waits here for as long as the filling takes.
    await admin.unsafe(
      'set statement_timeout = 0; set lock_timeout = 0; set transaction_timeout = 0',
    );
    await admin`select pg_advisory_lock(hashtext(${filled}))`;
    const { count } = await admin`select from pg_database where datname = ${filled}`;
    if (count > 0) return;
    const test = await createTestDatabase();
    await fillPayouts(test, 1_000_000);
    await analyze(test);
    // Under its name there is never a half of it.
    await test.handOver(filled);
  });
  return createTestDatabase({ hasRates: false, copyOf: filled });
}

/**
 * Fills a database with payouts as they end up, written without the triggers that make them
 * step by step. One account (`acc_0`) has nine of ten, a thousand others have the rest.
 */
export async function fillPayouts({ database }: TestDatabase, payouts: number): Promise<void> {
  await transaction(database, async (sql) => {
    await sql`select set_config('session_replication_role', 'replica', true),
                     set_config('statement_timeout', '0', true),
                     set_config('transaction_timeout', '0', true),
                     set_config('maintenance_work_mem', '512MB', true),
                     set_config('work_mem', '256MB', true)`;
    await sql.unsafe(fill(payouts, payouts * 0.9));
  });
}

/** What was filled in one transaction is told to the planner, and marked visible, once. */
export async function analyze({ database }: TestDatabase): Promise<void> {
  await transaction(database, async (sql) => {
    await sql`select set_config('statement_timeout', '0', true),
                     set_config('transaction_timeout', '0', true)`;
    // Not those that every database of the server shares: another test would be waited for.
    const tables = await sql<{ name: string }[]>`
      select quote_ident(tablename) as name from pg_tables where schemaname = 'public'`;
    await sql.unsafe(`analyze ${tables.map(({ name }) => name).join(', ')}`);
  });
}

/** Rare values are all among the oldest, where a scan of the newest never comes. */
const fill = (payouts: number, ofTheBig: number) => `
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
           case when i <= 10000 then 'bat_old' when i > ${ofTheBig - 10_000} and i <= ${ofTheBig} then 'bat_new' end
             as batch,
           case when i <= 5 then '{"env": "test"}'::jsonb
                when i % 100 = 7 then jsonb_build_object('env', 'prod', 'order', i::text)
                else '{"env": "prod"}' end as metadata
      from generate_series(1, ${payouts}) i;
  drop index payouts_list;
  insert into payouts (id, account_id, mode, driver, status, beneficiary_id, source_currency,
      destination_currency, amount, reference, metadata, requested_at, source_minor, fee_minor,
      net_minor, receive_minor, mid_value_minor, rate, mid, rail, settled_at, batch_id, batch_index)
    select id, account_id, 'test', id, status, beneficiary, source, destination, 10000, reference,
           metadata, at, 10000, 100, 9900, 9000, 9100, 0.9, 0.91, 'sandbox', at, batch, case when batch is not null then i end
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
  insert into events (id, account_id, sequence, type, subject_id, data, created_at)
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
