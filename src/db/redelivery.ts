import type { Fragment } from 'postgres';
import { maximumRedelivered } from '../domain/event.js';
import { exactlyOne, type Sql, when } from './client.js';
import { endPauses } from './endpointHealth.js';
import { firstId } from './id.js';
import type { WebhookEndpointRow } from './webhookEndpoints.js';

/** Makes deliveries due as if they had not been attempted: with the same id, on the whole schedule. */
const makeDue = (sql: Sql, chosen: Fragment) => sql<{ endpointId: string }[]>`
  update deliveries d set status = 'pending', attempts = 0, next_attempt_at = now()
    from webhook_endpoints w
   where w.id = d.endpoint_id and w.status = 'enabled' and w.deleted_at is null
     and d.status <> 'pending' and ${chosen}
  returning d.endpoint_id`;

/**
 * Makes an event due again at one enabled endpoint, or at each that it was for; what is pending stays.
 * Returns the endpoints to wake.
 */
export async function redeliverEvent(
  sql: Sql,
  eventId: string,
  endpointId: string | undefined,
): Promise<readonly string[]> {
  const chosen = sql`
    d.event_id = ${eventId} and ${when(sql, endpointId, (id) => sql`d.endpoint_id = ${id}`)}`;
  const endpointIds = (await makeDue(sql, chosen)).map((row) => row.endpointId);
  await endPauses(sql, endpointIds);
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

/** Makes what has failed for good at an enabled endpoint due again, by its events since a time. */
export async function redeliverFailed(sql: Sql, endpointId: string, since: Date): Promise<void> {
  await endPauses(sql, [endpointId]);
  await makeDue(
    sql,
    sql`(d.event_id, d.endpoint_id) in (
      select event_id, endpoint_id from deliveries where ${failedSince(sql, endpointId, since)}
       order by event_id limit ${maximumRedelivered})`,
  );
}

/**
 * Makes every event of a range due at an enabled endpoint that takes its type, whatever had become of
 * it, and adds the deliveries of those that were written before it listened. The endpoint is locked,
 * so of two ranges the second sees what the first has added.
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
  // Claims and the recording of attempts lock what is pending, and this what is not: neither waits
  // for the other, in whatever order they find their rows.
  await makeDue(sql, sql`d.endpoint_id = ${id} and d.event_id in (${wanted})`);
  await sql`
    insert into deliveries (event_id, endpoint_id, next_attempt_at)
    select id, ${id}, now() from (${wanted}) e
     where not exists (select from deliveries where event_id = e.id and endpoint_id = ${id})`;
}

/** What is on its way to an endpoint; more may have failed since a time, but not in a range. */
export async function redeliveryOf(sql: Sql, id: string, since?: Date): Promise<Redelivery> {
  const more = since && sql`exists (select from deliveries where ${failedSince(sql, id, since)})`;
  const [row] = await sql<Omit<Redelivery, 'endpointId'>[]>`
    select (select count(*)::int from deliveries
             where endpoint_id = ${id} and status = 'pending') as pending,
           ${more ?? sql`false`} as has_more`;
  return { endpointId: id, ...exactlyOne(row) };
}
