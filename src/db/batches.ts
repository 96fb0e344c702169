import { type BatchMode, type BatchStatus, batchStatuses, chunkCountOf } from '../domain/batch.js';
import type { PayoutStatus } from '../domain/payout.js';
import type { Refusal } from '../domain/refusal.js';
import { byId, mostRead, oneOf, ownedIn, type Sql, unnest, when } from './client.js';
import { orderAndLimit, type Page, type PageResult, pageRows, toPage } from './page.js';
import type { NewPayout, PayoutRow } from './payouts.js';
import type { CurrencyRate, CurrencyRates } from './rates.js';
import { wakeAfter } from './wakeTimes.js';

export type BatchRow = {
  readonly id: string;
  readonly accountId: string;
  readonly status: BatchStatus;
  readonly mode: BatchMode;
  /** Outcome of the batch as a whole; null until an all-or-nothing batch is decided. */
  readonly outcome: 'accepted' | 'refused' | null;
  readonly total: number;
  readonly open: number;
  readonly createdAt: Date;
  readonly completedAt: Date | null;
  readonly pausedAt: Date | null;
  readonly canceledAt: Date | null;
};

/**
 * Number and total amounts of the items of one status and corridor. Items that were not accepted are counted
 * separately, with zero amounts.
 */
export type BatchCount = {
  readonly status: PayoutStatus;
  readonly sourceCurrency: string | null;
  readonly destinationCurrency: string | null;
  readonly count: number;
  readonly sourceMinor: bigint;
  readonly feeMinor: bigint;
  readonly receiveMinor: bigint;
};

/** An item of a request: a new payout, or one that an earlier request created with the same key. */
export type NewItem = { readonly index: number } & (
  | {
      readonly payout: NewPayout;
      /** If not null, the payout will be refused for this reason when it is decided. */
      readonly refusal: Refusal | null;
    }
  | { readonly refersTo: string }
);

export type NewBatch = {
  readonly id: string;
  readonly accountId: string;
  readonly mode: BatchMode;
  readonly rates: CurrencyRates;
  /** In the order of the request. */
  readonly items: readonly NewItem[];
};

/** Rows per insert. `unnest` of this many takes a few milliseconds and little memory. */
const insertRows = 1_000;

/** Stores a batch and its items as pending payouts. Must run in a transaction of the caller. */
export async function insertBatch(sql: Sql, batch: NewBatch): Promise<void> {
  const { id, accountId, mode, items } = batch;
  const own = items.flatMap((item) => ('payout' in item ? [item] : []));
  const references = items.flatMap((item) =>
    'refersTo' in item ? [{ index: item.index, payoutId: item.refersTo }] : [],
  );
  await sql`
    insert into batches (id, account_id, mode, outcome, total, open, rates)
    values (${id}, ${accountId}, ${mode}, ${mode === 'best_effort' ? 'accepted' : null},
      ${items.length}, ${own.length}, ${JSON.stringify(batch.rates.map(rateToJson))}::text::jsonb)`;
  // The batch's workflow starts the chunks. The sweep starts any that it missed, and those of a batch
  // whose workflow was never started. Starting a chunk that is only waiting its turn is harmless.
  await sql`
    insert into batch_chunks (batch_id, number, wake_at)
    select ${id}, number, ${wakeAfter(sql, 'step')}
      from generate_series(0, ${chunkCountOf(items.length) - 1}::int) as number`;
  for (let start = 0; start < own.length; start += insertRows) {
    await insertItems(sql, id, own.slice(start, start + insertRows));
  }
  await sql`
    insert into batch_references (batch_id, batch_index, payout_id)
    select ${id}, t.index, t.payout_id
      from ${unnest(sql, references)`index int, payout_id text`}`;
}

async function insertItems(
  sql: Sql,
  batchId: string,
  items: readonly Extract<NewItem, { payout: NewPayout }>[],
): Promise<void> {
  const rows = items.map(({ payout, index, refusal }) => ({ ...payout, index, refusal }));
  await sql`
    insert into payouts (id, account_id, mode, driver, quote_id, beneficiary_id, source_currency,
      destination_currency, fixed_side, amount, reference, metadata, batch_id, batch_index, refusal)
    select t.id, t.account_id, t.mode, t.driver, t.quote_id, t.beneficiary_id,
           coalesce(t.source_currency, (select source_currency from quotes q
             where q.id = t.quote_id and q.account_id = t.account_id)),
           coalesce(t.destination_currency, (select currency from beneficiaries b
             where b.id = t.beneficiary_id and b.account_id = t.account_id)), t.fixed_side, t.amount, t.reference, t.metadata, ${batchId},
           t.index, t.refusal
      from ${unnest(sql, rows)`
        id text, account_id text, mode text, driver text, quote_id text, beneficiary_id text,
         source_currency text, destination_currency text, fixed_side text, amount bigint,
         reference text, metadata jsonb, index int, refusal jsonb`}`;
}

const columns = (sql: Sql) => sql`
  id, account_id, status, mode, outcome, total, open, created_at, completed_at, paused_at,
  canceled_at`;

/** Finds a batch of any account, for workflows and operators. */
export const findBatchById = byId<BatchRow>('batches', columns);

/** Returns the open batches of all accounts, oldest first, for operators. */
export async function listOpenBatches(sql: Sql): Promise<readonly BatchRow[]> {
  return sql<BatchRow[]>`
    select ${columns(sql)} from batches where status = 'processing'
     order by created_at limit ${mostRead}`;
}

/** Finds batches of an account by their IDs. */
export const findBatches = ownedIn<BatchRow>('batches', columns);
export const findBatch = oneOf(findBatches);

export async function listBatches(
  sql: Sql,
  accountId: string,
  page: Page,
  filter: { readonly status?: string | undefined },
): Promise<PageResult<BatchRow>> {
  const statuses = filter.status === undefined ? [...batchStatuses] : [filter.status];
  // The newest batches overall are among the newest of each status, so one index serves both.
  const rows = await sql<BatchRow[]>`
    select b.* from unnest(${statuses}::text[]) s (status) cross join lateral (
      select ${columns(sql)} from batches
       where account_id = ${accountId} and status = s.status
         and ${pageRows(sql, page, ['created_at', 'id'])}) b
     ${orderAndLimit(sql, page, ['b.created_at', 'b.id'])}`;
  return toPage(page, rows);
}

/** Counts and totals the items of a batch, including those that refer to earlier payouts. */
export async function countItems(sql: Sql, batchId: string): Promise<readonly BatchCount[]> {
  return sql<BatchCount[]>`
    select status, source_currency, destination_currency, count(*)::int as count,
           coalesce(sum(source_minor), 0)::bigint as source_minor,
           coalesce(sum(fee_minor), 0)::bigint as fee_minor,
           coalesce(sum(receive_minor), 0)::bigint as receive_minor
      from (select status, source_currency, destination_currency, source_minor, fee_minor,
                   receive_minor
              from payouts where batch_id = ${batchId}
            union all
            select p.status, p.source_currency, p.destination_currency, p.source_minor,
                   p.fee_minor, p.receive_minor
              from batch_references r join payouts p on p.id = r.payout_id
             where r.batch_id = ${batchId}) as items
     group by status, source_currency, destination_currency, source_minor is null
     order by status, source_currency, destination_currency`;
}

/** Progress of the batch's own items of one status. */
export type BatchProgress = {
  readonly status: PayoutStatus;
  readonly count: number;
  /** Items that the batch's workflow has yet to decide. */
  readonly undecided: number;
  /** IDs of items that wait for an operator, at most ten. */
  readonly parked: readonly string[];
};

/** Returns the progress of a batch's own items. Counting 10,000 takes a few milliseconds. */
export async function progressOfBatch(sql: Sql, id: string): Promise<readonly BatchProgress[]> {
  return sql<BatchProgress[]>`
    select status, count(*)::int as count,
           count(*) filter (where status = 'pending' and driver <> id)::int as undecided,
           (coalesce(array_agg(id order by batch_index) filter (where attention_at is not null),
             '{}'))[1:10] as parked
      from payouts where batch_id = ${id} group by status order by status`;
}

export type BatchItem = PayoutRow & { readonly itemIndex: number };

/**
 * Lists a page of a batch's items in the order of the request, starting after the index `after`.
 * Items that refer to earlier payouts show those payouts.
 */
export async function listItems(
  sql: Sql,
  batchId: string,
  page: {
    readonly after: number;
    readonly limit: number;
    readonly status: readonly PayoutStatus[] | null;
  },
): Promise<readonly BatchItem[]> {
  return sql<BatchItem[]>`
    select * from (
      (select p.*, p.batch_index as item_index from payouts p
        where p.batch_id = ${batchId} and p.batch_index > ${page.after}
          and ${when(sql, page.status, (wanted) => sql`p.status = any(${[...wanted]})`)}
        order by p.batch_index limit ${page.limit})
      union all
      (select p.*, r.batch_index as item_index
         from batch_references r join payouts p on p.id = r.payout_id
        where r.batch_id = ${batchId} and r.batch_index > ${page.after}
          and ${when(sql, page.status, (wanted) => sql`p.status = any(${[...wanted]})`)}
        order by r.batch_index limit ${page.limit})
    ) as items order by item_index limit ${page.limit}`;
}

/** Returns the index of a payout among the items of a batch, or undefined if it is not one of them. */
export async function indexOfItem(
  sql: Sql,
  batchId: string,
  payoutId: string,
): Promise<number | undefined> {
  const [row] = await sql<{ index: number }[]>`
    select batch_index as index from payouts where id = ${payoutId} and batch_id = ${batchId}
    union all
    select batch_index from batch_references
     where batch_id = ${batchId} and payout_id = ${payoutId}
     order by index limit 1`;
  return row?.index;
}

/** Returns the ID and status of a batch's own items in the order of the request; 10,000 are 400 kB. */
export async function statusesOfItems(
  sql: Sql,
  batchId: string,
): Promise<readonly { readonly id: string; readonly status: PayoutStatus }[]> {
  return sql<{ id: string; status: PayoutStatus }[]>`
    select id, status from payouts where batch_id = ${batchId} order by batch_index`;
}

/** Condition: the batch has yet to be decided as a whole. Until then, no item is decided on its own. */
export const awaitsOneDecision = (sql: Sql) => sql`outcome is null and canceled_at is null`;

/** Returns the rates promised to the batches of these payouts, and whether each batch is undecided. */
export async function batchRatesOf(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly { id: string; isUndecided: boolean; rates: CurrencyRates }[]> {
  type Row = { id: string; isUndecided: boolean; rates: ReturnType<typeof rateToJson>[] };
  const rows = await sql<Row[]>`
    select id, ${awaitsOneDecision(sql)} as is_undecided, rates from batches
     where id in (select distinct batch_id from payouts where id = any (${payoutIds}))`;
  return rows.map(({ rates, ...batch }) => ({
    ...batch,
    rates: rates.map((rate) => ({ ...rate, id: BigInt(rate.id), asOf: new Date(rate.asOf) })),
  }));
}

/** Converts a rate to a batch's JSON. The ID is included, to find the rate in the table of all rates. */
function rateToJson({ id, asOf, ...rate }: CurrencyRate) {
  return { ...rate, id: id.toString(), asOf: asOf.toISOString() };
}

/** Counts one item of a batch as final for each ID given; returns the batches that this completes. */
export async function completeBatches(
  sql: Sql,
  batchIds: readonly string[],
): Promise<readonly BatchRow[]> {
  if (batchIds.length === 0) return [];
  // Lock in a separate statement, so that the next one sees items canceled while this one waited.
  await sql`
    select from batches where id = any (${[...new Set(batchIds)]}) order by id for no key update`;
  const rows = await sql<BatchRow[]>`
    with closed as (
      select batch_id, count(*)::int as items
        from unnest(${batchIds}::text[]) as t (batch_id) group by batch_id
    )
    update batches b
       set open = b.open - c.items,
           status = case when b.open > c.items then b.status
                         -- A cancellation that came too late for every item has canceled nothing.
                         when b.canceled_at is not null and exists (
                           select from payouts p where p.batch_id = b.id and p.status = 'canceled')
                         then 'canceled' else 'completed' end,
           completed_at = case when b.open = c.items then clock_timestamp() end
      from closed c where b.id = c.batch_id
    returning ${columns(sql)}`;
  return rows.filter((row) => row.status !== 'processing');
}

/** Completes a batch that never had an open item; returns undefined if it is already complete. */
export async function closeEmptyBatch(sql: Sql, id: string): Promise<BatchRow | undefined> {
  const [row] = await sql<BatchRow[]>`
    update batches
       set status = 'completed', completed_at = now(), outcome = coalesce(outcome, 'accepted')
     where id = ${id} and status = 'processing' and open = 0 returning ${columns(sql)}`;
  return row;
}

export async function recordOutcome(
  sql: Sql,
  id: string,
  outcome: 'accepted' | 'refused',
): Promise<void> {
  await sql`update batches set outcome = ${outcome} where id = ${id} and outcome is null`;
}

/** Stops all further submissions of the batch to a rail. Idempotent. */
export async function cancelBatch(sql: Sql, id: string): Promise<void> {
  await sql`
    update batches set canceled_at = now()
     where id = ${id} and canceled_at is null and status = 'processing'`;
}

/** Returns the payouts that will never be submitted, because their batch was canceled before. */
export async function withheldForEver(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly string[]> {
  const rows = await sql<{ id: string }[]>`
    select p.id from payouts p join batches b on b.id = p.batch_id
     where p.id = any (${payoutIds}) and b.canceled_at is not null
       and p.status = 'processing' and p.submit_started_at is null`;
  return rows.map((row) => row.id);
}

/** Stops further submissions of the batch to a rail until it is resumed. */
export async function pauseBatch(sql: Sql, id: string): Promise<boolean> {
  const rows = await sql`
    update batches set paused_at = coalesce(paused_at, now())
     where id = ${id} and status = 'processing' returning id`;
  return rows.length > 0;
}

/** Resumes a paused batch. Its chunks become due, in case their workflows cannot be signaled. */
export async function resumeBatch(sql: Sql, id: string): Promise<boolean> {
  const rows = await sql`
    update batches set paused_at = null
     where id = ${id} and paused_at is not null and status = 'processing' returning id`;
  return rows.length > 0;
}
