import type { Funds } from '../domain/acceptance.js';
import { type Entry, type PostedEntry, type Posting, transfersOf } from '../domain/ledger.js';
import { type Limits, limitUsesOf, type UsedLimits } from '../domain/sendingLimits.js';
import type { Mode } from './accounts.js';
import { bigints, type Sql } from './client.js';
import { findPayeeDelays } from './payeeDelays.js';

/** An entry with the customer it belongs to. `payoutId` is null only for funding. */
export type OwnedEntry = {
  readonly entry: Entry;
  readonly mode: Mode;
  readonly accountId: string;
  readonly payoutId: string | null;
  /** For a correction: the command that a second person has approved. */
  readonly action?: string;
};

/**
 * Posts entries in one statement. The database rejects a second entry of the same kind for a payout,
 * a second entry of the same correcting command, and a negative balance.
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

/** Returns which entries these payouts already have, so that a repeated step posts nothing. */
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

/** Returns all entries of a payout in the order in which they were posted. */
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
 * One currency of an account, or one corridor with limits, as USD/EUR. An account without money has a
 * single row without a currency.
 */
type FundsRow = Omit<UsedLimits, 'destination'> &
  Pick<Funds, 'state'> & {
    readonly currency: string | null;
    readonly availableMinor: bigint | null;
    readonly readAt: Date;
  };

/**
 * Locks the balances that accepting these payouts will change, in ID order, and returns how much their
 * account may send. A currency without a row has nothing available.
 */
export async function lockFundsOf(sql: Sql, payoutIds: readonly string[]): Promise<Funds> {
  // Pipelined: the second statement runs after the first and sees the rules as they are under the lock.
  const [rows, payeeDelays] = await Promise.all([
    lockFunds(sql, payoutIds),
    findPayeeDelays(sql, sql`(select account_id from payouts where id = ${payoutIds[0] ?? ''})`),
  ]);
  return { ...fundsOf(rows), payeeDelays };
}

// Asynchronous, as a bare statement would be sent after those of the functions beside it.
const lockFunds = async (sql: Sql, payoutIds: readonly string[]) =>
  sql<FundsRow[]>`select * from lock_funds(${payoutIds}) order by currency`;

/** Returns how much an account may send, without locking. */
export async function findFunds(sql: Sql, accountId: string): Promise<Funds> {
  const [rows, payeeDelays] = await Promise.all([
    sql<FundsRow[]>`select * from account_funds where account_id = ${accountId} order by currency`,
    findPayeeDelays(sql, accountId),
  ]);
  return { ...fundsOf(rows), payeeDelays };
}

function fundsOf(rows: readonly FundsRow[]): Omit<Funds, 'payeeDelays'> {
  const available = new Map(rows.map((row) => [row.currency ?? '', row.availableMinor ?? 0n]));
  const limitUses = new Map(
    [...Map.groupBy(rows, ({ currency }) => pairIn(currency)[0])].flatMap(([currency, of]) => {
      const limits = of.map((row) => ({ ...row, destination: pairIn(row.currency)[1] }));
      const found = of[0] ? limitUsesOf(limits, of[0].readAt) : [];
      return found.length === 0 ? [] : [[currency, found] as const];
    }),
  );
  // No payouts means no account, hence nothing to send.
  return { state: rows[0]?.state ?? 'closed', available, limitUses };
}

/** Parses `USD/EUR` (a corridor) or `USD` (a currency). */
function pairIn(key: string | null): readonly [source: string, destination: string | null] {
  const [source = '', destination = null] = key?.split('/') ?? [];
  return [source, destination];
}

/**
 * Counts accepted payouts towards their account's limits, if any, on the day of acceptance in each row.
 * Call it after the rows are written and while their balance is locked.
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

/** Sets limits. Null leaves a limit unchanged, and zero removes it. */
export async function setLimits(
  sql: Sql,
  limits: Limits & { readonly accountId: string; readonly currency: string },
): Promise<void> {
  const { currency, destination } = limits;
  const key = destination === null ? currency : `${currency}/${destination}`;
  // A month may have a million payouts, which are counted once when the limit is set.
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

/** Returns all balances of an account, ordered by currency code. */
export const listBalances = async (sql: Sql, accountId: string) => sql<BalanceRow[]>`
  select currency,
         sum(amount_minor) filter (where kind = 'available')::bigint as available_minor,
         coalesce(sum(amount_minor) filter (where kind = 'held'), 0)::bigint as held_minor
    from ledger_balances where account_id = ${accountId}
   group by currency order by currency`;

/** A customer's balance that differs from the sum of its postings; null if there is no balance row. */
export type BalanceBreak = {
  readonly accountId: string;
  readonly kind: 'available' | 'held';
  readonly currency: string;
  readonly balanceMinor: bigint | null;
  readonly postingsMinor: bigint;
};

/**
 * Compares every balance with its postings. A single statement sees all of them in one snapshot without
 * locks. It reads every posting, so it may take longer than other statements.
 */
export const listBalanceBreaks = (sql: Sql) => sql<BalanceBreak[]>`
  select * from balance_breaks order by account_id, currency, kind`;

/** Payouts that are accepted but not settled: held from customers (fee and net), owed to beneficiaries. */
export type Exposure = {
  readonly mode: Mode;
  readonly sourceCurrency: string;
  readonly destinationCurrency: string;
  readonly payouts: number;
  readonly heldMinor: bigint;
  readonly netMinor: bigint;
  readonly owedMinor: bigint;
};

/** Returns the exposure per mode and currency pair. Reads by account, as few of all payouts are open. */
export const listExposures = async (sql: Sql) => sql<Exposure[]>`
  select p.mode, p.source_currency, p.destination_currency, count(*)::int as payouts,
         sum(p.source_minor)::bigint as held_minor, sum(p.net_minor)::bigint as net_minor,
         sum(p.receive_minor)::bigint as owed_minor
    from accounts a cross join lateral (
      select * from payouts where account_id = a.id and status in ('processing', 'sent')) p
   group by p.mode, p.source_currency, p.destination_currency
   order by p.mode, p.source_currency, p.destination_currency`;

export type CurrencySum = {
  readonly mode: Mode;
  readonly currency: string;
  readonly sumMinor: bigint;
  readonly postings: bigint;
};

/** Returns the sum of postings per mode and currency. Anything but zero means that the ledger is broken. */
export const sumPostings = async (sql: Sql) => sql<CurrencySum[]>`
  select a.mode, p.currency, sum(p.amount_minor)::bigint as sum_minor, count(*) as postings
    from ledger_postings p join ledger_accounts a on a.id = p.ledger_account_id
   group by a.mode, p.currency order by a.mode, p.currency`;
