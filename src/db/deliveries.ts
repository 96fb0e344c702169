import type { Sql } from './client.js';
import type { EventType } from './events.js';

/** One (event, endpoint) pair with everything that an attempt needs. */
export type DueDelivery = {
  readonly eventId: string;
  readonly endpointId: string;
  readonly attempts: number;
  readonly url: string;
  readonly secret: string;
  readonly apiVersion: string;
  readonly type: EventType;
  readonly sequence: bigint;
  readonly data: Record<string, unknown>;
  readonly createdAt: Date;
};

/** Longer than an attempt may take (15 s), so that nobody else attempts the same pair meanwhile. */
const lease = '30 seconds';

/** Takes the pairs of these payouts' events that were never attempted. */
export async function takeFirstAttempts(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly DueDelivery[]> {
  return sql<DueDelivery[]>`
    with taken as (
      update deliveries d
         set attempts = d.attempts + 1, last_attempt_at = now(),
             next_attempt_at = now() + ${lease}::interval
       where (d.event_id, d.endpoint_id) in (
         select event_id, endpoint_id from deliveries join events e on e.id = event_id
          where e.payout_id = any (${payoutIds}) and status = 'pending' and attempts = 0
          order by event_id, endpoint_id for update of deliveries skip locked)
      returning d.event_id, d.endpoint_id, d.attempts
    )
    select t.*, w.url, w.secret, w.api_version, e.type, e.sequence, e.data, e.created_at
      from taken t join events e on e.id = t.event_id
      join webhook_endpoints w on w.id = t.endpoint_id order by e.sequence`;
}

/** Takes the pairs of an endpoint that are due, oldest event first. */
export async function takeDueDeliveries(
  sql: Sql,
  endpointId: string,
  limit: number,
): Promise<readonly DueDelivery[]> {
  return sql<DueDelivery[]>`
    with taken as (
      update deliveries d
         set attempts = d.attempts + 1, last_attempt_at = now(),
             next_attempt_at = now() + ${lease}::interval
       where (d.event_id, d.endpoint_id) in (
         select event_id, endpoint_id from deliveries
          where endpoint_id = ${endpointId} and status = 'pending' and next_attempt_at <= now()
          order by next_attempt_at limit ${limit} for update skip locked)
      returning d.event_id, d.endpoint_id, d.attempts
    )
    select t.*, w.url, w.secret, w.api_version, e.type, e.sequence, e.data, e.created_at
      from taken t join events e on e.id = t.event_id
      join webhook_endpoints w on w.id = t.endpoint_id order by e.sequence`;
}

export type AttemptResult = {
  readonly eventId: string;
  readonly endpointId: string;
  readonly status: 'delivered' | 'pending' | 'exhausted';
  readonly httpStatus: number | null;
  readonly error: string | null;
  /** For a pair that stays pending. */
  readonly retryInMs: number;
};

export async function recordAttempts(sql: Sql, results: readonly AttemptResult[]): Promise<void> {
  if (results.length === 0) return;
  await sql`
    update deliveries d
       set status = t.status, last_status = t.http_status, last_error = t.error,
           next_attempt_at = now() + make_interval(secs => t.retry_in_ms / 1000.0)
      from unnest(
        ${results.map((result) => result.eventId)}::text[],
        ${results.map((result) => result.endpointId)}::text[],
        ${results.map((result) => result.status)}::text[],
        ${results.map((result) => result.httpStatus)}::int[],
        ${results.map((result) => result.error)}::text[],
        ${results.map((result) => result.retryInMs)}::float8[]
      ) as t (event_id, endpoint_id, status, http_status, error, retry_in_ms)
     where d.event_id = t.event_id and d.endpoint_id = t.endpoint_id and d.status = 'pending'`;
}

export type DeliveryRow = {
  readonly eventId: string;
  readonly endpointId: string;
  readonly status: 'pending' | 'delivered' | 'exhausted' | 'canceled';
  readonly attempts: number;
  readonly lastAttemptAt: Date | null;
  readonly lastStatus: number | null;
  readonly lastError: string | null;
  readonly nextAttemptAt: Date;
};

/** What became of an event at each endpoint that listened: no more than an account may have. */
export async function deliveriesOf(sql: Sql, eventId: string): Promise<readonly DeliveryRow[]> {
  return sql<DeliveryRow[]>`
    select event_id, endpoint_id, status, attempts, last_attempt_at, last_status, last_error,
           next_attempt_at
      from deliveries where event_id = ${eventId} order by endpoint_id desc`;
}

/** Milliseconds until the endpoint's next attempt is due; undefined when nothing is owed. */
export async function nextAttemptInMs(sql: Sql, endpointId: string): Promise<number | undefined> {
  // greatest() ignores nulls: without the having clause nothing owed would read as due now.
  const [row] = await sql<{ inMs: number }[]>`
    select greatest(0, extract(epoch from min(next_attempt_at) - now()) * 1000)::float8 as in_ms
      from deliveries where endpoint_id = ${endpointId} and status = 'pending'
    having count(*) > 0`;
  return row?.inMs;
}

/** Disables an endpoint whose receiver said that it is gone, and drops what it was owed. */
export async function disableEndpoint(sql: Sql, endpointId: string, reason: string): Promise<void> {
  await sql`
    with disabled as (
      update webhook_endpoints set status = 'disabled', status_reason = ${reason}
       where id = ${endpointId} and status = 'enabled' returning id
    )
    update deliveries set status = 'canceled'
     where endpoint_id in (select id from disabled) and status = 'pending'`;
}

/** Endpoints whose deliveries are overdue: nobody is working on them. */
export async function overdueEndpoints(sql: Sql): Promise<readonly string[]> {
  const rows = await sql<{ endpointId: string }[]>`
    select distinct endpoint_id from deliveries
     where status = 'pending' and next_attempt_at < now() - interval '15 seconds' limit 500`;
  return rows.map((row) => row.endpointId);
}
