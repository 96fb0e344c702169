import { type Chunk, type ChunkCounts, chunkDriver, chunkSize } from '../domain/batch.js';
import type { PayoutStatus, WakeablePayout } from '../domain/payout.js';
import { awaitsOneDecision } from './batches.js';
import { exactlyOne, type Sql, when } from './client.js';
import { hasUnappliedFacts, wakeable } from './payouts.js';
import { wakeAfter } from './wakeTimes.js';

/** Time after which an order without a response from the rail should be seen by a person. */
const unansweredLimit = '10 minutes';

/** Condition: a payout is in the chunk's range of its batch, whatever its driver. */
function withinChunk(sql: Sql, { batchId, number }: Chunk) {
  const first = number * chunkSize;
  return sql`batch_id = ${batchId} and batch_index >= ${first} and batch_index < ${first + chunkSize}`;
}

/** Returns the payouts of a chunk that a driver may move (null: any driver), in the order of the request. */
export async function itemsOf(
  sql: Sql,
  chunk: Chunk,
  statuses: readonly PayoutStatus[],
  driver: string | null = chunkDriver(chunk),
): Promise<readonly string[]> {
  const rows = await sql<{ id: string }[]>`
    select id from payouts
     where ${withinChunk(sql, chunk)} and status = any (${[...statuses]})
       and ${when(sql, driver, (wanted) => sql`driver = ${wanted}`)} order by batch_index`;
  return rows.map((row) => row.id);
}

export async function countChunk(sql: Sql, chunk: Chunk): Promise<ChunkCounts> {
  const [row] = await sql<ChunkCounts[]>`
    select count(*) filter (where attention_at is null and status = 'pending')::int as pending,
           count(*) filter (where attention_at is null and status = 'processing'
                              and submit_started_at is null)::int as unsent,
           count(*) filter (where attention_at is null and status = 'processing'
                              and submit_started_at is not null)::int as unanswered,
           count(*) filter (where attention_at is null and status = 'processing'
                              and submit_started_at < now() - ${unansweredLimit}::interval
                           )::int as overdue,
           count(*) filter (where attention_at is null and status = 'sent'
                              and settle_by > now())::int as sent,
           count(*) filter (where attention_at is not null
                               or (status = 'sent' and settle_by <= now()))::int as stuck
      from payouts
     where ${withinChunk(sql, chunk)} and driver = ${chunkDriver(chunk)}`;
  return exactlyOne(row);
}

/** Returns the payouts of a chunk that have unprocessed events in the inbox. */
export async function itemsWithUnprocessedEvents(
  sql: Sql,
  chunk: Chunk,
): Promise<readonly string[]> {
  const rows = await sql<{ id: string }[]>`
    select id from payouts p
     where ${withinChunk(sql, chunk)} and driver = ${chunkDriver(chunk)} and ${hasUnappliedFacts(sql)}`;
  return rows.map((row) => row.id);
}

/** Leases the chunk: the sweep does not wake it until the lease expires. */
export async function leaseChunk(sql: Sql, chunk: Chunk, forMs: number): Promise<void> {
  await sql`
    update batch_chunks
       set waiting = false, wake_at = ${wakeAfter(sql, { ms: forMs })}
     where batch_id = ${chunk.batchId} and number = ${chunk.number}`;
}

/**
 * Releases a chunk: from now on, callbacks must signal its workflow. The caller reads the inbox once more
 * in the same transaction for events that arrived just before; the row lock puts the two in order.
 *
 * @param forMs time until the chunk is due again without any event; null means never
 */
export async function releaseChunk(sql: Sql, chunk: Chunk, forMs: number | null): Promise<void> {
  await sql`
    update batch_chunks
       set waiting = true, wake_at = ${forMs === null ? null : wakeAfter(sql, { ms: forMs })}
     where batch_id = ${chunk.batchId} and number = ${chunk.number}`;
}

/**
 * Hands payouts of a chunk over to their own workflows, where operators find them. Always includes
 * payouts that are parked or past settle-by. Scope `unanswered` adds those without a definite response
 * for ten minutes. Scope `all` adds all that are open or have unprocessed events, because an event of a
 * payout that settled long ago must not block those of the others. It leaves out pending payouts whose
 * batch has yet to be decided as a whole.
 *
 * Locks the chunk first. A fact that is stored later finds that the payout has left the chunk, and wakes the
 * payout's own workflow. One that is being stored may stay with the chunk, which the sweep wakes for it.
 */
export async function handOverItems(
  sql: Sql,
  chunk: Chunk,
  scope: 'stuck' | 'unanswered' | 'all',
): Promise<readonly WakeablePayout[]> {
  const { batchId, number } = chunk;
  return sql<WakeablePayout[]>`
    with held as materialized (
      select from batch_chunks where batch_id = ${batchId} and number = ${number} for no key update
    )
    update payouts set driver = id, wake_at = ${wakeAfter(sql, 'handOver')}
     where id in (select id from payouts p
                   where (select count(*) from held) >= 0
                     and ${withinChunk(sql, chunk)} and driver = ${chunkDriver(chunk)}
                     and (attention_at is not null
                       or (status = 'sent' and settle_by <= now())
                       or (${scope === 'unanswered'} and status = 'processing'
                           and submit_started_at < now() - ${unansweredLimit}::interval)
                       or (${scope === 'all'} and (status in ('pending', 'processing', 'sent')
                         or ${hasUnappliedFacts(sql)})
                         and not (status = 'pending' and exists (select from batches b
                           where b.id = p.batch_id and ${awaitsOneDecision(sql)}))))
                   order by id for no key update)
    returning ${wakeable(sql)}`;
}

/**
 * Moves a payout out of its chunk, so that its own workflow can execute a request, unless it is undecided.
 * Returns whether it is. Waits for a decision under way.
 */
export async function takeOver(sql: Sql, payoutId: string): Promise<{ isUndecided: boolean }> {
  const [row] = await sql<
    { isUndecided: boolean }[]
  >`select take_over(${payoutId}) as is_undecided`;
  return exactlyOne(row);
}

export type OverdueChunk = Chunk & {
  /** Whether the batch's own workflow must act: items are undecided, or no item was ever open. */
  readonly isUndecided: boolean;
};

/** Maximum number of chunks per sweep, more than ten full batches have. The next sweep takes the rest. */
const sweepLimit = 250;

/** Claims overdue chunks and postpones them, so that the next sweep does not claim them as well. */
export async function claimOverdueChunks(sql: Sql): Promise<readonly OverdueChunk[]> {
  return sql<OverdueChunk[]>`
    update batch_chunks c set wake_at = ${wakeAfter(sql, 'woken')}
     where (batch_id, number) in (select batch_id, number from batch_chunks
                                   where wake_at < now() order by wake_at limit ${sweepLimit}
                                     for update skip locked)
    returning batch_id, number,
      exists (select from payouts p where p.batch_id = c.batch_id
                 and p.batch_index >= c.number * ${chunkSize}::int
                 and p.batch_index < (c.number + 1) * ${chunkSize}::int
                 and p.status = 'pending' and p.driver = c.batch_id || '/' || c.number)
        or exists (select from batches b
                    where b.id = c.batch_id and b.status = 'processing' and b.open = 0)
        as is_undecided`;
}

/** Returns the chunks of a batch, in order to wake all of them. */
export async function chunksOf(sql: Sql, batchId: string): Promise<readonly Chunk[]> {
  return sql<Chunk[]>`
    select batch_id, number from batch_chunks where batch_id = ${batchId} order by number`;
}
