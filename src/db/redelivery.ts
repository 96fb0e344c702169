import type { Fragment } from 'postgres';
import { exactlyOne, type Sql, when } from './client.js';
import { endPauses } from './endpointHealth.js';
import { firstId } from './id.js';

/** As many events as a batch has; what is more waits for another request. */
const mostRedelivered = 10_000;

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
       order by event_id limit ${mostRedelivered})`,
  );
}

export async function redeliveryOf(sql: Sql, endpointId: string, since: Date): Promise<Redelivery> {
  const [row] = await sql<Omit<Redelivery, 'endpointId'>[]>`
    select (select count(*)::int from deliveries
             where endpoint_id = ${endpointId} and status = 'pending') as pending,
           exists (select from deliveries where ${failedSince(sql, endpointId, since)}) as has_more`;
  return { endpointId, ...exactlyOne(row) };
}
