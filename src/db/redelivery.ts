import type { Fragment } from 'postgres';
import { maximumRedelivered } from '../domain/event.js';
import { exactlyOne, type Sql, when } from './client.js';
import { isListening, lease } from './deliveries.js';
import { pendingInGroupsAt } from './deliveryGroups.js';
import { deliveriesOfEach } from './deliveryLog.js';
import { endPauses } from './endpointHealth.js';
import { firstId } from './id.js';
import type { WebhookEndpointRow } from './webhookEndpoints.js';

/**
 * Restarts finished deliveries as if they had not been attempted: with the same ID and the full retry
 * schedule. Adds a successful attempt to the log, which already has the failed ones, because the
 * delivery's row will be overwritten by the next attempt.
 */
const restart = (sql: Sql, chosen: Fragment) => sql`
  with due as (
    update deliveries d set status = 'pending', attempts = 0, next_attempt_at = now()
      from webhook_endpoints w
     where w.id = d.endpoint_id and ${isListening(sql)} and d.status <> 'pending' and ${chosen}
    returning d.event_id, d.endpoint_id, last_attempt_at, last_latency_ms, last_status, old.status
  )
  insert into delivery_attempts (event_id, endpoint_id, at, latency_ms, http_status)
  select event_id, endpoint_id, last_attempt_at, last_latency_ms, last_status from due
   where status = 'delivered' and last_status is not null on conflict do nothing`;

/**
 * Makes pending deliveries due at once; their retry schedules continue from there. Skips those that may
 * be in flight, so that neither this nor an attempt waits for the other's locks.
 */
const expedite = (sql: Sql, chosen: Fragment) => sql`
  update deliveries set next_attempt_at = now()
   where ctid = any (array(
     select ctid from deliveries d
      where status = 'pending' and next_attempt_at > now() + ${lease}::interval and ${chosen}
      limit ${maximumRedelivered} for update skip locked))`;

/**
 * Makes an event due again at one enabled endpoint, or at every enabled endpoint that it was for. Returns
 * the endpoints to wake.
 */
export async function redeliverEvent(
  sql: Sql,
  eventId: string,
  endpointId: string | undefined,
): Promise<readonly string[]> {
  const chosen = sql`
    d.event_id = ${eventId} and ${when(sql, endpointId, (id) => sql`d.endpoint_id = ${id}`)}`;
  const rows = await sql<{ endpointId: string }[]>`
    select d.endpoint_id from events o cross join ${deliveriesOfEach(sql)}
      join webhook_endpoints w on w.id = d.endpoint_id and ${isListening(sql)}
     where o.id = ${eventId} and ${chosen}`;
  const endpointIds = rows.map((row) => row.endpointId);
  // Before the deliveries, because every transaction that locks both locks the endpoint first.
  await endPauses(sql, endpointIds);
  await restart(sql, chosen);
  await expedite(sql, chosen);
  return endpointIds;
}

/** Number of pending deliveries at an endpoint, and whether more have failed since a time. */
export type Redelivery = {
  readonly endpointId: string;
  readonly pending: number;
  readonly hasMore: boolean;
};

/** An endpoint's failures count from when the first is recorded, at most 17 s after its attempt was claimed. */
const recordedWithinMs = 20_000;

/**
 * Condition: a delivery failed for good, and its event has happened or its last or next attempt was due since a
 * time. Its event may be much older, for example if it was redelivered.
 */
const failedSince = (sql: Sql, endpointId: string, since: Date) => sql`
  endpoint_id = ${endpointId} and status in ('exhausted', 'canceled')
  and (event_id >= ${firstId('event', since.getTime())}
    or next_attempt_at >= ${new Date(since.getTime() - recordedWithinMs)})`;

/** Counts the deliveries that `redeliverFailed` would make due at an endpoint of the account. */
export async function countFailed(
  sql: Sql,
  accountId: string,
  endpointId: string,
  since: Date,
): Promise<number> {
  const rows = await sql`
    select from deliveries
     where ${failedSince(sql, endpointId, since)}
       and exists (select from webhook_endpoints where id = ${endpointId} and account_id = ${accountId})
     limit ${maximumRedelivered}`;
  return rows.count;
}

/** Makes deliveries due again that failed for good at an enabled endpoint since a time, and all pending ones. */
export async function redeliverFailed(sql: Sql, endpointId: string, since: Date): Promise<void> {
  await endPauses(sql, [endpointId]);
  // The status again: a row that waited for another redelivery's lock is read again, but the subquery is not.
  const failed = sql`d.status in ('exhausted', 'canceled') and (d.event_id, d.endpoint_id) in (
    select event_id, endpoint_id from deliveries where ${failedSince(sql, endpointId, since)}
     order by event_id limit ${maximumRedelivered})`;
  await restart(sql, failed);
  await expedite(sql, sql`endpoint_id = ${endpointId}`);
}

/**
 * Makes all events of a range due at an enabled endpoint if it subscribes to their type, whatever their
 * result so far. Adds deliveries for events from before the endpoint was enabled. The caller has locked
 * the endpoint, so the second of two concurrent calls sees the deliveries that the first added.
 */
export async function redeliverRange(
  sql: Sql,
  { id, accountId, events }: WebhookEndpointRow,
  from: bigint,
  to: bigint,
): Promise<void> {
  const wanted = sql`
    select id from events
     where account_id = ${accountId} and sequence between ${from} and ${to}
       and (type = any (${[...events]}::text[]) or '*' = any (${[...events]}::text[]))`;
  await endPauses(sql, [id]);
  const chosen = sql`d.endpoint_id = ${id} and d.event_id in (${wanted})`;
  await restart(sql, chosen);
  await expedite(sql, chosen);
  await sql`
    insert into deliveries (event_id, endpoint_id, next_attempt_at)
    select id, ${id}, now() from (${wanted}) e
     where not exists (select from deliveries where event_id = e.id and endpoint_id = ${id})
       and id not in (select event_id from (${pendingInGroupsAt(sql, id)}) g)`;
}

/** Counts an endpoint's pending deliveries, and checks whether more failed since a time, if one is given. */
export async function redeliveryOf(sql: Sql, id: string, since?: Date): Promise<Redelivery> {
  const more = since && sql`exists (select from deliveries where ${failedSince(sql, id, since)})`;
  const [row] = await sql<Omit<Redelivery, 'endpointId'>[]>`
    select (select count(*)::int from deliveries
             where endpoint_id = ${id} and status = 'pending')
           + (select count(*)::int from (${pendingInGroupsAt(sql, id)}) g) as pending,
           ${more ?? sql`false`} as has_more`;
  return { endpointId: id, ...exactlyOne(row) };
}
