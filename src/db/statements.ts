import type { Statement } from '../domain/railReport.js';
import { exactlyOne, onlyRow, type Sql, unnest } from './client.js';

/** A difference between statement and ledger: the view `statement_breaks` (migration 0042, why: 0009). */
export type Break = {
  readonly rail: string;
  readonly payoutId: string;
  readonly direction: 'debit' | 'credit';
  readonly kind: 'no such payout' | 'not in the ledger' | 'not on the statement' | 'amounts differ';
  readonly bankMinor: bigint | null;
  readonly bankCurrency: string | null;
  readonly ledgerMinor: bigint | null;
  readonly ledgerCurrency: string | null;
  readonly since: Date;
};

/**
 * Stores the lines of one day of a rail's statement. Replaces the lines stored while the day was open.
 * Once the day is closed, changes nothing.
 */
export async function storeStatement(
  sql: Sql,
  { rail, date, closed, lines }: Statement & { readonly rail: string; readonly date: string },
): Promise<void> {
  const numbered = lines.map((entry, index) => ({ ...entry, line: index + 1 }));
  // One at a time: a statement read before the day was closed must not overwrite a later one.
  await sql`select pg_advisory_xact_lock(hashtextextended(${`statement ${rail} ${date}`}, 0))`;
  const known = await sql`
    select from statements where rail = ${rail} and statement_date = ${date}::text::date`;
  if (known.count > 0) return;
  await sql`
    delete from statement_entries where rail = ${rail} and statement_date = ${date}::text::date`;
  await sql`
    insert into statement_entries
      (rail, statement_date, line, bank_reference, direction, rail_key, currency, amount_minor,
       booked_at)
    select ${rail}, ${date}::text::date, t.line, t.bank_reference, t.direction, t.key,
           t.currency, t.amount_minor, t.booked_at
      from ${unnest(sql, numbered)`
        bank_reference text, direction text, key text, currency text, amount_minor bigint,
         booked_at timestamptz, line int`}`;
  if (closed) {
    await sql`
      insert into statements (rail, statement_date) values (${rail}, ${date}::text::date)`;
  }
}

/** Returns days without a closed statement, the oldest and the newest since the rail's first payout. */
export async function unreadDays(sql: Sql, rail: string, from = '-infinity') {
  const rows = await sql<{ day: string }[]>`
    select to_char(day, 'YYYY-MM-DD') as day from unread_days(${rail}) as day
     where day >= ${from}::text::date order by day`;
  return rows.map((row) => row.day);
}

export type EvidenceQuery = {
  readonly rail: string;
  readonly key: string;
  /** Null, like `currency`, if a debit of any amount in any currency may be the payment. */
  readonly amountMinor: bigint | null;
  readonly currency: string | null;
  readonly since: Date;
  /** YYYY-MM-DD. */
  readonly until: string;
};

export type Evidence = {
  readonly payments: number;
  readonly openDays: number;
  /** Number of keys with a debit of this amount whose debits do not add up to the ledger's amount. */
  readonly unmatched: number;
};

/**
 * Returns what the statements show about an order. Counts unmatched keys and open days from the day before
 * `since`, open days through `until`, and entries with the order's key on any day.
 */
export async function readEvidence(sql: Sql, query: EvidenceQuery): Promise<Evidence> {
  const { rail, key, amountMinor, currency, since, until } = query;
  return onlyRow(sql<Evidence[]>`
    select (select count(*)::int from statement_entries
             where rail = ${rail} and rail_key = ${key}) as payments,
           (select count(*)::int
              from unmatched_debits(${rail}, ${currency}, ${amountMinor},
                                    (${since}::timestamptz at time zone 'UTC')::date - 1)
           ) as unmatched,
           (select count(*)::int
              from generate_series((${since}::timestamptz at time zone 'UTC')::date - 1,
                                   ${until}::text::date, interval '1 day') as day
             where not exists (select from statements
                                where rail = ${rail} and statement_date = day::date)) as open_days`);
}

/** Returns the last closed statement of each rail. Payments since then are not fully compared yet. */
export const lastStatements = (sql: Sql) => sql<{ rail: string; day: string }[]>`
  select rail, max(statement_date)::text as day from statements group by rail order by rail`;

/**
 * Whether every rail has closed a day lately. Until a day is closed, what only its side of the books has is no
 * difference yet. Five days, because a bank may close none of a long weekend. Before the first payout no day is read.
 */
export async function areStatementsRecent(sql: Sql): Promise<boolean> {
  const [row] = await sql<{ areRecent: boolean }[]>`
    select coalesce(bool_and(day >= current_date - 5), true) as are_recent
      from (select max(statement_date) as day from statements group by rail) last`;
  return exactlyOne(row).areRecent;
}

/** Returns differences between the bank's statements and the ledger, oldest first. */
export const listBreaks = async (sql: Sql, limit: number) =>
  sql<Break[]>`select * from statement_breaks order by since limit ${limit}`;

/** Counts differences; if the statements are incomplete, only those that the bank's own lines show. */
export async function countBreaks(sql: Sql, isComplete: boolean): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from statement_breaks where ${isComplete} or bank_minor is not null`;
  return exactlyOne(row).count;
}

/** What the bank and the ledger moved, by currency and direction, as far as closed days show both. */
export type MovementTotal = {
  readonly currency: string;
  readonly direction: 'debit' | 'credit';
  readonly bankMinor: bigint;
  readonly ledgerMinor: bigint;
  /** The difference, for metrics only. */
  readonly drift: number;
};

/**
 * The bank counts what it booked on closed days. The ledger may book the same a day later, so it counts a
 * payout once a closed day has it, or, if no day has it, once the day after the ledger's own is closed. A
 * reversal counts with the entry that it reverses, not a day later.
 */
export const movementTotals = async (sql: Sql) => sql<MovementTotal[]>`
  with booked as (select e.*, s.rail is not null as is_closed
                    from statement_entries e left join statements s using (rail, statement_date))
  select currency, direction, least(sum(bank_minor), 9223372036854775807)::bigint as bank_minor,
         sum(ledger_minor)::bigint as ledger_minor,
         (sum(bank_minor) - sum(ledger_minor))::float8 as drift
    from (select currency, direction, amount_minor as bank_minor, 0 as ledger_minor
            from booked where is_closed
          union all
          select currency, direction, 0, sum(amount_minor) from ledger_movements m
            join (select rail, max(statement_date) as day from statements group by rail) as last
              using (rail)
            left join (select rail, rail_key as payout_id, direction, bool_or(is_closed) as is_closed
                         from booked group by 1, 2, 3) as b using (rail, payout_id, direction)
           group by rail, payout_id, direction, currency, last.day, b.is_closed
          having coalesce(b.is_closed, (min(m.booked_at) at time zone 'UTC')::date < last.day)) as moved
   group by currency, direction order by currency, direction`;
