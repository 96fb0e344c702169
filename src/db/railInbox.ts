import type { Chunk } from '../domain/batch.js';
import { railNameOf } from '../domain/corridor.js';
import { payoutOfKey, type WakeablePayout } from '../domain/payout.js';
import { type RailEvent, type RailReportJson, reportToJson } from '../domain/railReport.js';
import { type Sql, unnest } from './client.js';
import { isUnapplied, wakeable } from './payouts.js';
import { wakeAfter } from './wakeTimes.js';

/** The workflows to signal: those of payouts that have their own, and those of suspended chunks. */
export type ToSignal = {
  readonly payouts: readonly WakeablePayout[];
  readonly chunks: readonly Chunk[];
};

/**
 * Stores each of a rail's events once, and makes their payouts due within seconds, in case the signal
 * fails. A known event ID with a different fact or order is a new event. If only the fact's reason or
 * time differs it is a duplicate, as from a bank that numbers its delivery attempts. A report that
 * changes nothing about a final payout (`effectOf` would agree) is marked as applied and signals no
 * workflow. Nor does an event for a chunk that is being processed, which reads the inbox itself.
 */
export async function storeRailEvents(
  sql: Sql,
  rail: string,
  events: readonly RailEvent[],
): Promise<ToSignal> {
  const reported = events.map(({ id, key, report }, place) => ({
    ...{ place, railEventId: id, railKey: key, payoutId: payoutOfKey(key) },
    fact: reportToJson(report),
  }));
  const modes = (['test', 'live'] as const).filter((mode) => railNameOf(mode) === rail);
  const kept = await sql<{ payoutId: string }[]>`
    insert into rail_inbox (rail, rail_event_id, rail_key, payout_id, fact, applied_at, outcome)
    select ${rail}, t.rail_event_id, t.rail_key, p.id, t.fact,
           case when k.is_known then now() end, case when k.is_known then 'nothing new' end
      from ${unnest(sql, reported)`
        place int, rail_event_id text, rail_key text, payout_id text, fact jsonb`}
      -- One that was never accepted has no rail; what a rail says of it says that it may have been paid.
      left join payouts p on p.id = t.payout_id
        and (p.rail = ${rail} or (p.rail is null and p.mode = any (${modes})))
      cross join lateral (select
        (p.status in ('settled', 'returned') and t.fact ->> 'kind' = 'settled'
           and t.fact ->> 'currency' = p.destination_currency
           and t.fact ->> 'amountMinor' = p.receive_minor::text)
        or (p.status = 'failed' and t.fact ->> 'kind' = 'rejected')
        or (p.status = 'returned' and t.fact ->> 'kind' = 'returned'
           and t.fact ->> 'currency' = p.destination_currency
           and t.fact ->> 'amountMinor' = p.returned_minor::text
           and p.returned_minor * 2 > p.receive_minor) as is_repeated) r
      -- After a correction it may be new all the same (domain/factEffect.ts).
      cross join lateral (select r.is_repeated and not exists (select from ledger_entries e
          where e.payout_id = p.id and e.kind = 'correction') as is_known) k
     -- A join does not keep the bank's order, which the ids record: a hash join reverses it.
     order by t.place
    on conflict (rail, rail_event_id, rail_key, jsonb_hash_extended(fact - '{at,reason}'::text[], 0))
      do nothing
    returning case when applied_at is null then payout_id end as payout_id`;
  const ids = kept.flatMap(({ payoutId }) => payoutId ?? []);
  if (ids.length === 0) return { payouts: [], chunks: [] };
  // Lock the chunk's row even while it is being processed. An activity that is about to release the
  // chunk then either sees these events or has already released it.
  const chunks = await sql<Chunk[]>`
    with items as materialized (
      select distinct batch_id, driver from payouts where id = any (${ids}) and driver <> id
    ), found as (
      -- Arrays: a join would be planned as if there were a chunk for each payout.
      select c.batch_id, c.number, c.waiting from batch_chunks c
       where c.batch_id = any (array(select batch_id from items))
         and c.batch_id || '/' || c.number = any (array(select driver from items))
       order by c.batch_id, c.number for no key update
    )
    update batch_chunks c set waiting = false, wake_at = ${wakeAfter(sql, 'railEvent')}
      from found f where f.batch_id = c.batch_id and f.number = c.number and f.waiting
    returning c.batch_id, c.number`;
  // After the chunks, so that a payout that leaves its chunk meanwhile is woken on its own.
  const payouts = await sql<WakeablePayout[]>`
    update payouts set wake_at = ${wakeAfter(sql, 'railEvent')}
     where id in (select id from payouts where id = any (${ids}) and driver = id
                   order by id for no key update)
    returning ${wakeable(sql)}`;
  return { payouts, chunks };
}

export type InboxRow = {
  readonly id: bigint;
  readonly payoutId: string;
  readonly report: RailReportJson;
};

/** Returns the unapplied events of these payouts, by arrival. No rejection precedes another report. */
export async function unprocessedEvents(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly InboxRow[]> {
  return sql<InboxRow[]>`
    select i.id, i.payout_id, i.fact as report
      from payouts p cross join lateral (
        select * from rail_inbox i where i.payout_id = p.id and ${isUnapplied(sql)} offset 0) i
     where p.id = any (${payoutIds}) order by i.fact ->> 'kind' = 'rejected', i.id`;
}

/**
 * Marks events as applied that did not move a payout. Also clears the wake time of final payouts that are
 * not parked, even if the events changed nothing: otherwise the sweep would wake them forever.
 */
export async function markApplied(
  sql: Sql,
  applied: readonly { readonly id: bigint; readonly outcome: string }[],
): Promise<void> {
  if (applied.length === 0) return;
  await sql`
    with marked as (
      update rail_inbox i set applied_at = now(), outcome = t.outcome
        from ${unnest(sql, applied)`id bigint, outcome text`}
       where i.id = t.id
      returning i.payout_id
    )
    update payouts set wake_at = null
     where id in (select payout_id from marked) and wake_at is not null
       and attention_at is null and status not in ('pending', 'processing', 'sent')`;
}
