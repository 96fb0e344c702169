import type { EntryKind } from '../domain/ledger.js';
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

/** A page of what moved an account's balances. */
export async function listBalanceTransactions(
  sql: Sql,
  accountId: string,
  page: Page,
  filter: BalanceTransactionFilter,
): Promise<PageResult<BalanceTransactionRow>> {
  const { currency, type, payoutId } = filter;
  const inCurrency = when(sql, currency, (wanted) => sql`b.currency = ${wanted}`);
  // The newest of each balance are among the newest of all; there are two a currency.
  const ofBalances = () => sql<BalanceTransactionRow[]>`
    select p.id, p.entry_kind as type,
           (select payout_id from ledger_entries e where e.id = p.entry_id) as payout_id,
           b.kind as balance, b.currency, p.amount_minor, p.created_at
      from ledger_balances b cross join lateral (
        select * from ledger_postings
         where ledger_account_id = b.ledger_account_id and entry_kind is not null
           and ${when(sql, type, (wanted) => sql`entry_kind = ${wanted}`)}
           and ${pageRows(sql, page, ['created_at', 'id'])}) p
     where b.account_id = ${accountId} and ${inCurrency}
     ${orderAndLimit(sql, page, ['p.created_at', 'p.id'])}`;
  // A payout has an entry of each kind at most, so these are a handful.
  const ofPayout = (id: string) => sql<BalanceTransactionRow[]>`
    select p.id, e.kind as type, e.payout_id, b.kind as balance, b.currency, p.amount_minor,
           p.created_at
      from ledger_entries e join ledger_postings p on p.entry_id = e.id
      join ledger_balances b on b.ledger_account_id = p.ledger_account_id
     where e.payout_id = ${id} and b.account_id = ${accountId} and ${inCurrency}
       and ${when(sql, type, (wanted) => sql`e.kind = ${wanted}`)}
       and ${pageRows(sql, page, ['p.created_at', 'p.id'])}`;
  return toPage(page, await (payoutId === undefined ? ofBalances() : ofPayout(payoutId)));
}

/** Where a transaction of the account stands in its list. */
export async function positionOfBalanceTransaction(
  sql: Sql,
  accountId: string,
  id: string,
): Promise<Position | undefined> {
  const [row] = await sql<Position[]>`
    select p.created_at as at, p.id::text
      from ledger_transfers t join ledger_postings p on p.entry_id = t.entry_id
      join ledger_balances b on b.ledger_account_id = p.ledger_account_id
     where t.id in (${id}::bigint, ${id}::bigint - 1) and p.id = ${id}
       and b.account_id = ${accountId}`;
  return row;
}
