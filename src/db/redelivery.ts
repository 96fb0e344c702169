import type { Fragment } from 'postgres';
import { maximumRedelivered } from '../domain/event.js';
import { exactlyOne, type Sql, when } from './client.js';
import { lease } from './deliveries.js';
import { pendingInGroupsAt } from './deliveryGroups.js';
import { deliveriesOfEach } from './deliveryLog.js';
import { endPauses } from './endpointHealth.js';
import { firstId } from './id.js';
import type { WebhookEndpointRow } from './webhookEndpoints.js';

/**
 * Makes deliveries due as if they had not been attempted: with the same id, on the whole schedule. An
 * attempt that has succeeded is logged, as those that failed are: the row is for the newest one.
 */
const makeDue = (sql: Sql, chosen: Fragment) => sql`
  with due as (
    update deliveries d set status = 'pending', attempts = 0, next_attempt_at = now()
      from webhook_endpoints w
     where w.id = d.endpoint_id and w.status = 'enabled' and w.deleted_at is null
       and d.status <> 'pending' and ${chosen}
    returning d.event_id, d.endpoint_id, d.last_attempt_at, d.last_latency_ms, d.last_status
  )
  insert into delivery_attempts (event_id, endpoint_id, at, latency_ms, http_status)
  select * from due where last_status between 200 and 299 on conflict do nothing`;

/**
 * Makes pending deliveries due at once, and their schedules go on from there. Those that may be in
 * flight are left alone, so neither this nor an attempt waits for the other's locks.
 */
const hurry = (sql: Sql, chosen: Fragment) => sql`
  update deliveries set next_attempt_at = now()
   where ctid = any (array(
     select ctid from deliveries d
      where status = 'pending' and next_attempt_at > now() + ${lease}::interval and ${chosen}
      limit ${maximumRedelivered} for update skip locked))`;

/**
 * Makes an event due again at one enabled endpoint, or at each that it was for. Returns the endpoints
 * to wake.
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
     where o.id = ${eventId} and ${chosen}`;
  const endpointIds = rows.map((row) => row.endpointId);
  // Before the deliveries: every transaction that locks both locks the endpoint first.
  await endPauses(sql, endpointIds);
  await makeDue(sql, chosen);
  await hurry(sql, chosen);
  return endpointIds;
}

/** What is on its way to an endpoint, and whether more has failed since a time. */
export type Redelivery = {
  readonly endpointId: string;
  readonly pending: number;
  readonly hasMore: boolean;
};

const failedSince = (sql: Sql, endpointId: string, since: Date) => sql`
  endpoint_id = ${endpointId} and status in ('exhausted', 'canceled')
  and event_id >= ${firstId('event', since.getTime())}`;

/** How many deliveries `redeliverFailed` makes due at an endpoint of the account. */
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

/** Makes what has failed for good at an enabled endpoint due again, by its events since a time. */
export async function redeliverFailed(sql: Sql, endpointId: string, since: Date): Promise<void> {
  await endPauses(sql, [endpointId]);
  await makeDue(
    sql,
    sql`(d.event_id, d.endpoint_id) in (
      select event_id, endpoint_id from deliveries where ${failedSince(sql, endpointId, since)}
       order by event_id limit ${maximumRedelivered})`,
  );
  await hurry(
    sql,
    sql`endpoint_id = ${endpointId} and event_id >= ${firstId('event', since.getTime())}`,
  );
}

/**
 * Makes every event of a range due at an enabled endpoint that subscribes to its type, whatever its
 * outcome so far, and adds deliveries for events from before the endpoint was enabled. The endpoint is
 * locked, so of two ranges the second sees what the first has added.
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
  await makeDue(sql, chosen);
  await hurry(sql, chosen);
  await sql`
    insert into deliveries (event_id, endpoint_id, next_attempt_at)
    select id, ${id}, now() from (${wanted}) e
     where not exists (select from deliveries where event_id = e.id and endpoint_id = ${id})
       and id not in (select event_id from (${pendingInGroupsAt(sql, id)}) g)`;
}

/** What is on its way to an endpoint; more may have failed since a time, but not in a range. */
export async function redeliveryOf(sql: Sql, id: string, since?: Date): Promise<Redelivery> {
  const more = since && sql`exists (select from deliveries where ${failedSince(sql, id, since)})`;
  const [row] = await sql<Omit<Redelivery, 'endpointId'>[]>`
    select (select count(*)::int from deliveries
             where endpoint_id = ${id} and status = 'pending')
           + (select count(*)::int from (${pendingInGroupsAt(sql, id)}) g) as pending,
           ${more ?? sql`false`} as has_more`;
  return { endpointId: id, ...exactlyOne(row) };
}
