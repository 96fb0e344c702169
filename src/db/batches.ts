import type { PayoutStatus } from '../domain/payout.js';
import { bigints, type Sql } from './client.js';
import {
  beyond,
  type Created,
  createdWithin,
  type Listed,
  listed,
  nearest,
  type Page,
} from './page.js';
import type { NewPayout, WakeablePayout } from './payouts.js';
import type { RateFigure } from './rates.js';

export type BatchRow = {
  readonly id: string;
  readonly accountId: string;
  readonly status: 'processing' | 'completed';
  readonly total: number;
  readonly open: number;
  readonly createdAt: Date;
  readonly completedAt: Date | null;
};

/** What items of one status and corridor come to; amounts of refused items are zero. */
export type BatchCount = {
  readonly status: PayoutStatus;
  readonly sourceCurrency: string | null;
  readonly destinationCurrency: string | null;
  readonly count: number;
  readonly sourceMinor: bigint;
  readonly feeMinor: bigint;
  readonly receiveMinor: bigint;
};

/** Rows of one insert: `unnest` of as many is a few milliseconds and small in memory. */
const insertRows = 1_000;

export type NewBatch = {
  readonly id: string;
  readonly accountId: string;
  readonly rates: readonly RateFigure[];
  /** In the order of the request. */
  readonly items: readonly NewPayout[];
};

/** Records a batch with its items as pending payouts; the caller's transaction holds it together. */
export async function insertBatch(sql: Sql, batch: NewBatch): Promise<void> {
  const { id, accountId, items } = batch;
  const rates = JSON.stringify(batch.rates);
  await sql`
    insert into batches (id, account_id, total, open, rates)
    values (${id}, ${accountId}, ${items.length}, ${items.length}, ${rates}::text::jsonb)`;
  for (let start = 0; start < items.length; start += insertRows) {
    await insertItems(sql, id, start, items.slice(start, start + insertRows));
  }
}

async function insertItems(
  sql: Sql,
  batchId: string,
  firstIndex: number,
  items: readonly NewPayout[],
): Promise<void> {
  const of = <T>(pick: (item: NewPayout, index: number) => T): T[] => items.map(pick);
  await sql`
    insert into payouts (id, account_id, mode, driver, quote_id, beneficiary_id, source_currency,
      destination_currency, fixed_side, amount, reference, metadata, batch_id, batch_index, wake_at)
    select t.id, t.account_id, t.mode, t.driver, t.quote_id, t.beneficiary_id, t.source_currency,
           t.destination_currency, t.fixed_side, t.amount, t.reference, t.metadata, ${batchId}, t.index,
           -- The batch's workflow starts the items; the sweep only what it leaves behind.
           now() + interval '60 seconds'
      from unnest(
        ${of((item) => item.id)}::text[],
        ${of((item) => item.accountId)}::text[],
        ${of((item) => item.mode)}::text[],
        ${of((item) => item.driver)}::text[],
        ${of((item) => item.quoteId)}::text[],
        ${of((item) => item.beneficiaryId)}::text[],
        ${of((item) => item.sourceCurrency)}::text[],
        ${of((item) => item.destinationCurrency)}::text[],
        ${of((item) => item.fixedSide)}::text[],
        ${bigints(of((item) => item.amount))}::bigint[],
        ${of((item) => item.reference)}::text[],
        ${of((item) => JSON.stringify(item.metadata))}::text[]::jsonb[],
        ${of((_, index) => firstIndex + index)}::int[]
      ) as t (id, account_id, mode, driver, quote_id, beneficiary_id, source_currency,
              destination_currency, fixed_side, amount, reference, metadata, index)`;
}

export async function findBatch(
  sql: Sql,
  accountId: string,
  id: string,
): Promise<BatchRow | undefined> {
  const [row] = await sql<BatchRow[]>`
    select id, account_id, status, total, open, created_at, completed_at
      from batches where id = ${id} and account_id = ${accountId}`;
  return row;
}

/** Batches of an account by their ids. */
export async function findBatches(
  sql: Sql,
  accountId: string,
  ids: readonly string[],
): Promise<readonly BatchRow[]> {
  return sql<BatchRow[]>`
    select id, account_id, status, total, open, created_at, completed_at
      from batches where id = any (${ids}) and account_id = ${accountId}`;
}

export async function listBatches(
  sql: Sql,
  accountId: string,
  page: Page,
  filter: { readonly created?: Created | undefined; readonly status?: string | undefined },
): Promise<Listed<BatchRow>> {
  const { created, status = null } = filter;
  const rows = await sql<BatchRow[]>`
    select id, account_id, status, total, open, created_at, completed_at from batches
     where account_id = ${accountId} and (${status}::text is null or status = ${status})
       and ${createdWithin(sql, created, 'created_at')}
       and ${beyond(sql, page, ['created_at', 'id'])}
     ${nearest(sql, page, ['created_at', 'id'])}`;
  return listed(page, rows);
}

export async function countItems(sql: Sql, batchId: string): Promise<readonly BatchCount[]> {
  return sql<BatchCount[]>`
    select status, source_currency, destination_currency, count(*)::int as count,
           coalesce(sum(source_minor), 0)::bigint as source_minor,
           coalesce(sum(fee_minor), 0)::bigint as fee_minor,
           coalesce(sum(receive_minor), 0)::bigint as receive_minor
      from payouts where batch_id = ${batchId}
     group by status, source_currency, destination_currency
     order by status, source_currency, destination_currency`;
}

/** The rates that the batches of these payouts were promised. */
export async function batchRatesOf(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly { id: string; rates: readonly RateFigure[] }[]> {
  return sql<{ id: string; rates: RateFigure[] }[]>`
    select id, rates from batches
     where id in (select batch_id from payouts where id = any (${payoutIds}))`;
}

/** Counts items as final, each once, and returns the batches that are complete by that. */
export async function closeItems(
  sql: Sql,
  batchIds: readonly string[],
): Promise<readonly BatchRow[]> {
  if (batchIds.length === 0) return [];
  const rows = await sql<BatchRow[]>`
    with locked as (
      select id from batches where id = any (${[...new Set(batchIds)]}) order by id
         for no key update
    ), closed as (
      select id, count(*)::int as count from unnest(${batchIds}::text[]) as t (id) group by id
    )
    update batches b
       set open = b.open - c.count,
           status = case when b.open = c.count then 'completed' else b.status end,
           completed_at = case when b.open = c.count then now() end
      from closed c join locked using (id) where b.id = c.id
    returning b.id, b.account_id, b.status, b.total, b.open, b.created_at, b.completed_at`;
  return rows.filter((row) => row.status === 'completed');
}

/** The most items that are started by one activity run: some seconds at 25 in flight. */
const startLimit = 500;

/** The next items of a batch that nobody has decided, in the order of the request. */
export async function pendingItems(
  sql: Sql,
  batchId: string,
  afterIndex: number,
): Promise<readonly (WakeablePayout & { readonly batchIndex: number })[]> {
  return sql<(WakeablePayout & { readonly batchIndex: number })[]>`
    select id, account_id, mode, batch_id, source_currency, destination_currency, settle_by,
           batch_index
      from payouts
     where batch_id = ${batchId} and batch_index > ${afterIndex} and status = 'pending'
     order by batch_index limit ${startLimit}`;
}
