import { type EntryKind, entryKinds } from '../domain/ledger.js';
import { type Sql, when } from './client.js';
import {
  orderAndLimit,
  type Page,
  type PageResult,
  type Position,
  pageRows,
  toPage,
} from './page.js';

/** One posting to a balance of a customer. */
export type BalanceTransactionRow = {
  readonly id: bigint;
  readonly type: EntryKind;
  readonly payoutId: string | null;
  readonly balance: 'available' | 'held';
  readonly currency: string;
  readonly amountMinor: bigint;
  readonly createdAt: Date;
};

export type BalanceTransactionFilter = {
  readonly currency?: string | undefined;
  readonly payoutId?: string | undefined;
  readonly type?: EntryKind | undefined;
};

/** Lists a page of the postings to an account's balances. */
export async function listBalanceTransactions(
  sql: Sql,
  accountId: string,
  page: Page,
  filter: BalanceTransactionFilter,
): Promise<PageResult<BalanceTransactionRow>> {
  const { currency, type, payoutId } = filter;
  const kinds = type === undefined ? [...entryKinds] : [type];
  const inCurrency = when(sql, currency, (wanted) => sql`currency = ${wanted}`);
  // The newest entries overall are among the newest of each currency and kind.
  const ofBalances = sql`
    select e.* from (select distinct currency from ledger_balances
                      where account_id = ${accountId} and ${inCurrency}) c
     cross join unnest(${kinds}::text[]) k (kind)
     cross join lateral (
       select * from ledger_entries
        where account_id = ${accountId} and currency = c.currency and kind = k.kind
          and ${pageRows(sql, entryPage(page), ['created_at', 'id'])}) e
    ${orderAndLimit(sql, entryPage(page), ['e.created_at', 'e.id'])}`;
  // A payout has only a handful of entries, corrections included.
  const ofPayout = (id: string) => sql`
    select * from ledger_entries
     where payout_id = ${id} and account_id = ${accountId} and kind = any (${kinds}::text[])
       and ${inCurrency}`;
  const rows = await sql<BalanceTransactionRow[]>`
    select * from (
      select p.id, e.kind as type, e.payout_id, b.kind as balance, b.currency, p.amount_minor,
             e.created_at
        from (${payoutId === undefined ? ofBalances : ofPayout(payoutId)}) e
        join ledger_postings p on p.entry_id = e.id
        join ledger_balances b on b.ledger_account_id = p.ledger_account_id) t
     where ${pageRows(sql, page, ['created_at', 'id'])}`;
  return toPage(page, rows);
}

/**
 * Converts a page of postings to the page of entries that contains it. Includes the cursor's own entry,
 * which may have further postings or none, and therefore reads one entry more.
 */
function entryPage({ from, ...page }: Page): Page {
  if (from === null) return { ...page, from };
  const id = BigInt(from.id) / postingIds + (page.toward === 'older' ? 1n : -1n);
  return { ...page, limit: page.limit + 1, from: { at: from.at, id: String(id) } };
}

/** The IDs of an entry's postings start at the entry's ID times this number (ledger_postings). */
const postingIds = 32n;

/** Finds the position of a balance transaction in its account's list. */
export async function positionOfBalanceTransaction(
  sql: Sql,
  accountId: string,
  id: string,
): Promise<Position | undefined> {
  const [row] = await sql<Position[]>`
    select p.created_at as at, p.id::text
      from ledger_postings p join ledger_balances b on b.ledger_account_id = p.ledger_account_id
     where p.entry_id = ${String(BigInt(id) / postingIds)}::bigint and p.id = ${id}
       and b.account_id = ${accountId}`;
  return row;
}
