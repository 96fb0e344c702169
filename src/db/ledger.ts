import type { Funds } from '../domain/acceptance.js';
import { type Entry, type PostedEntry, type Posting, transfersOf } from '../domain/ledger.js';
import { type Limits, standingsOf, type UsedLimits } from '../domain/limits.js';
import type { Mode } from './accounts.js';
import { bigints, type Database, longTransaction, type Sql } from './client.js';

/** An entry with the customer it belongs to; `payoutId` is null for funding alone. */
export type OwnedEntry = {
  readonly entry: Entry;
  readonly mode: Mode;
  readonly accountId: string;
  readonly payoutId: string | null;
  /** Of a correction: the command that a second person has approved. */
  readonly action?: string;
};

/**
 * Writes entries with their postings, in one statement. The database refuses a second entry of one
 * kind for a payout or of a correcting command, and a negative balance.
 *
 * @throws Error when an entry does not balance
 */
export async function postEntries(sql: Sql, entries: readonly OwnedEntry[]): Promise<void> {
  if (entries.length === 0) return;
  const transfers = entries.flatMap(({ entry }, index) =>
    transfersOf(entry).map((transfer) => ({ ...transfer, entryNumber: index + 1 })),
  );
  const corrects = entries.some(({ action }) => action !== undefined);
  await sql`select post_entries(
    ${entries.map((owned) => owned.payoutId)}::text[],
    ${entries.map((owned) => owned.entry.kind)}::text[],
    ${entries.map((owned) => owned.mode)}::text[],
    ${entries.map((owned) => owned.accountId)}::text[],
    ${transfers.map((transfer) => transfer.entryNumber)}::int[],
    ${transfers.map((transfer) => transfer.from)}::text[],
    ${transfers.map((transfer) => transfer.to)}::text[],
    ${transfers.map((transfer) => transfer.currency)}::text[],
    ${bigints(transfers.map((transfer) => transfer.amountMinor))}::bigint[],
    ${corrects ? entries.map(({ action }) => action ?? null) : null}::text[],
    ${corrects ? bigints(entries.map(({ entry }) => entry.reverses ?? null)) : null}::bigint[])`;
}

/** Which entries these payouts have already: a step that is run again posts nothing. */
export async function postedEntries(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<ReadonlySet<string>> {
  const rows = await sql<{ payoutId: string; kind: string; reversed: string | null }[]>`
    select payout_id, kind, (select r.kind from ledger_entries r where r.id = e.reverses) as reversed
      from ledger_entries e where payout_id = any (${payoutIds})`;
  return new Set(
    rows.flatMap(({ payoutId, kind, reversed }) => [
      `${payoutId} ${kind}`,
      ...(reversed === null ? [] : [`${payoutId} reversed ${reversed}`]),
    ]),
  );
}

/** Everything that is posted for a payout, in the order in which it was. */
export async function entriesOf(sql: Sql, payoutId: string): Promise<readonly PostedEntry[]> {
  type Row = Posting & Pick<PostedEntry, 'id' | 'kind'> & { readonly reverses: bigint | null };
  const rows = await sql<Row[]>`
    select e.id, e.kind, e.reverses, a.kind as account, p.currency, p.amount_minor
      from ledger_entries e join ledger_postings p on p.entry_id = e.id
      join ledger_accounts a on a.id = p.ledger_account_id
     where e.payout_id = ${payoutId} order by e.id, p.id`;
  return [...new Map(rows.map((row) => [row.id, row])).values()].map(({ id, kind, reverses }) => ({
    id,
    kind,
    ...(reverses === null ? {} : { reverses }),
    postings: rows.filter((row) => row.id === id),
  }));
}

/**
 * One currency of an account, or one corridor with limits as USD/EUR; an account without money has one
 * row without a currency.
 */
type FundsRow = Omit<UsedLimits, 'destination'> &
  Pick<Funds, 'state'> & {
    readonly currency: string | null;
    readonly availableMinor: bigint | null;
    readonly readAt: Date;
  };

/**
 * Locks the balances that accepting these payouts will change, in the order of their ids, and
 * returns what their account may send. A currency without a row has nothing available.
 */
export async function lockFundsOf(sql: Sql, payoutIds: readonly string[]): Promise<Funds> {
  return fundsOf(
    await sql<FundsRow[]>`
    select * from lock_funds(${payoutIds}) order by currency`,
  );
}

/** What an account may send, without a lock. */
export async function findFunds(sql: Sql, accountId: string): Promise<Funds> {
  const rows = await sql<FundsRow[]>`
    select * from account_funds where account_id = ${accountId} order by currency`;
  return fundsOf(rows);
}

function fundsOf(rows: readonly FundsRow[]): Funds {
  const available = new Map(rows.map((row) => [row.currency ?? '', row.availableMinor ?? 0n]));
  const standings = new Map(
    [...Map.groupBy(rows, ({ currency }) => pairIn(currency)[0])].flatMap(([currency, of]) => {
      const limits = of.map((row) => ({ ...row, destination: pairIn(row.currency)[1] }));
      const found = of[0] ? standingsOf(limits, of[0].readAt) : [];
      return found.length === 0 ? [] : [[currency, found] as const];
    }),
  );
  // Without a payout there is no account, and nothing to send.
  return { state: rows[0]?.state ?? 'closed', available, standings };
}

/** The two currencies of a corridor, or the one of a currency. */
function pairIn(key: string | null): readonly [source: string, destination: string | null] {
  const [source = '', destination = null] = key?.split('/') ?? [];
  return [source, destination];
}

/**
 * Counts what was accepted towards limits, if there are any, on the days that the rows have: after
 * they were written, and under the lock of their balance.
 */
export async function countUses(sql: Sql, accepted: readonly { readonly id: string }[]) {
  if (accepted.length === 0) return;
  await sql`
    insert into limit_uses (account_id, currency, day, used_minor)
    select l.account_id, l.currency, (processing_since at time zone 'UTC')::date, sum(source_minor)
      from payouts p join account_limits l
        on l.account_id = p.account_id
       and l.currency in (p.source_currency, p.source_currency || '/' || p.destination_currency)
     where id = any (${accepted.map(({ id }) => id)}) group by 1, 2, 3
    on conflict (account_id, currency, day) do update
       set used_minor = limit_uses.used_minor + excluded.used_minor`;
}

/** Sets limits; null leaves one as it is, and zero ends it. */
export async function setLimits(
  sql: Sql,
  limits: Limits & { readonly accountId: string; readonly currency: string },
): Promise<void> {
  const { currency, destination } = limits;
  const key = destination === null ? currency : `${currency}/${destination}`;
  // The payouts of a month may be a million, and they are counted once.
  await sql`select set_config('statement_timeout', '60s', true)`;
  await sql`
    select set_limits(${limits.accountId}, ${key}, ${limits.payoutMinor},
      ${limits.dayMinor}, ${limits.monthMinor})`;
}

export type BalanceRow = {
  readonly currency: string;
  readonly availableMinor: bigint;
  readonly heldMinor: bigint;
};

/** Every currency balance of an account, by currency code. */
export async function listBalances(sql: Sql, accountId: string): Promise<readonly BalanceRow[]> {
  return sql<BalanceRow[]>`
    select currency,
           sum(amount_minor) filter (where kind = 'available')::bigint as available_minor,
           coalesce(sum(amount_minor) filter (where kind = 'held'), 0)::bigint as held_minor
      from ledger_balances where account_id = ${accountId}
     group by currency order by currency`;
}

/** A customer's balance that is not the sum of its postings; null where there is no balance. */
export type BalanceBreak = {
  readonly accountId: string;
  readonly kind: 'available' | 'held';
  readonly currency: string;
  readonly balanceMinor: bigint | null;
  readonly postingsMinor: bigint;
};

/**
 * Compares every balance with its postings, in one statement: it sees all of them at one moment
 * and locks none. It reads every posting there is, so it may take longer than other statements.
 *
 * @param limitMs when it is abandoned
 */
export async function listBalanceBreaks(
  database: Database,
  limitMs: number,
): Promise<readonly BalanceBreak[]> {
  return longTransaction(
    database,
    limitMs,
    (sql) => sql<BalanceBreak[]>`select * from balance_breaks order by account_id, currency, kind`,
  );
}

/** What was accepted and has not settled: held for customers, fee and net, and due in another currency. */
export type Exposure = {
  readonly mode: Mode;
  readonly sourceCurrency: string;
  readonly destinationCurrency: string;
  readonly payouts: number;
  readonly heldMinor: bigint;
  readonly netMinor: bigint;
  readonly owedMinor: bigint;
};

/** The exposure a pair of currencies, account by account: what is open is few of what there is. */
export async function listExposures(sql: Sql): Promise<readonly Exposure[]> {
  return sql<Exposure[]>`
    select p.mode, p.source_currency, p.destination_currency, count(*)::int as payouts,
           sum(p.source_minor)::bigint as held_minor, sum(p.net_minor)::bigint as net_minor,
           sum(p.receive_minor)::bigint as owed_minor
      from accounts a cross join lateral (
        select * from payouts where account_id = a.id and status in ('processing', 'sent')) p
     group by p.mode, p.source_currency, p.destination_currency
     order by p.mode, p.source_currency, p.destination_currency`;
}

export type CurrencySum = {
  readonly mode: Mode;
  readonly currency: string;
  readonly sumMinor: bigint;
  readonly postings: bigint;
};

/** The sum of all postings a currency: zero, or the ledger is broken. */
export async function sumPostings(sql: Sql): Promise<readonly CurrencySum[]> {
  return sql<CurrencySum[]>`
    select a.mode, p.currency, sum(p.amount_minor)::bigint as sum_minor, count(*) as postings
      from ledger_postings p join ledger_accounts a on a.id = p.ledger_account_id
     group by a.mode, p.currency order by a.mode, p.currency`;
}
