import type { EventType } from '../domain/event.js';
import type { Sql } from './client.js';

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

/** Longer than a run of attempts may take (35 s), so that nobody else attempts it meanwhile. */
const lease = '45 seconds';

export type Pair = { readonly eventId: string; readonly endpointId: string };

/**
 * Pairs of these payouts' events that were never attempted, as far as anybody knows, oldest
 * event first. `isRepeated`: an earlier run of the same activity may have taken some and died.
 */
export async function owedFirstAttempts(
  sql: Sql,
  payoutIds: readonly string[],
  isRepeated: boolean,
): Promise<readonly Pair[]> {
  const rows = await sql<(Pair & { readonly sequence: bigint })[]>`
    select d.event_id, d.endpoint_id, e.sequence
      from events e join deliveries d on d.event_id = e.id
     where e.payout_id = any (${payoutIds}) and ${isUntried(sql, isRepeated)}`;
  // Sorted here: for the order's sake the planner would walk all events by their sequence.
  return rows.toSorted((a, b) => (a.sequence < b.sequence ? -1 : 1));
}

/** Takes pairs for their first attempt; what somebody else has taken meanwhile is left out. */
export async function takeFirstAttempts(
  sql: Sql,
  pairs: readonly Pair[],
  isRepeated: boolean,
): Promise<readonly DueDelivery[]> {
  return sql<DueDelivery[]>`
    with taken as (
      update deliveries d
         set attempts = 1, last_attempt_at = now(), next_attempt_at = now() + ${lease}::interval
        from unnest(${pairs.map((pair) => pair.eventId)}::text[],
                    ${pairs.map((pair) => pair.endpointId)}::text[]) as t (event_id, endpoint_id)
       where d.event_id = t.event_id and d.endpoint_id = t.endpoint_id
         and ${isUntried(sql, isRepeated)}
      returning d.event_id, d.endpoint_id, d.attempts
    )
    ${whatWasTaken(sql)}`;
}

/** Gives back what was taken and not tried: it is due as if it had not been taken. */
export async function giveBack(sql: Sql, pairs: readonly Pair[]): Promise<void> {
  if (pairs.length === 0) return;
  await sql`
    update deliveries d
       set attempts = greatest(d.attempts - 1, 0), next_attempt_at = now(),
           last_attempt_at = case when d.attempts > 1 then d.last_attempt_at end
      from unnest(${pairs.map((pair) => pair.eventId)}::text[],
                  ${pairs.map((pair) => pair.endpointId)}::text[]) as t (event_id, endpoint_id)
     where d.event_id = t.event_id and d.endpoint_id = t.endpoint_id and ${isPending(sql)}`;
}

/**
 * Not `status = 'pending'`: by that the planner would take the index of all that is pending,
 * thousands of rows during a batch, in place of the few that are named. And a `case`, which it
 * cannot estimate: where the statistics are of a time when all was delivered, it would expect one
 * row, and compare each of thousands with each that is named, for seconds.
 */
const isPending = (sql: Sql) => sql`
  case when d.status in ('delivered', 'exhausted', 'canceled') then false else true end`;

const isUntried = (sql: Sql, isRepeated: boolean) => sql`
  case when ${isPending(sql)} then d.attempts = 0 or (${isRepeated} and d.attempts = 1
    and d.last_status is null and d.last_error is null) else false end`;

/** The pairs that a statement has `taken`, with everything that an attempt needs, oldest first. */
const whatWasTaken = (sql: Sql) => sql`
  select t.*, w.url, w.secret, w.api_version, e.type, e.sequence, e.data, e.created_at
    from taken t join events e on e.id = t.event_id
    join webhook_endpoints w on w.id = t.endpoint_id order by e.sequence`;

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
    ${whatWasTaken(sql)}`;
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
     where d.event_id = t.event_id and d.endpoint_id = t.endpoint_id and ${isPending(sql)}`;
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
  // The first row of an index, and no minimum with a count: that reads all that is owed.
  const [row] = await sql<{ inMs: number }[]>`
    select greatest(0, extract(epoch from next_attempt_at - now()) * 1000)::float8 as in_ms
      from deliveries where endpoint_id = ${endpointId} and status = 'pending'
     order by next_attempt_at limit 1`;
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

/**
 * Endpoints whose deliveries are overdue: nobody is working on them. By its first delivery alone:
 * with `exists` the planner may read everything that is owed to anybody.
 */
export async function overdueEndpoints(sql: Sql): Promise<readonly string[]> {
  const rows = await sql<{ id: string }[]>`
    select id from webhook_endpoints w
     where (select min(next_attempt_at) from deliveries d
             where d.endpoint_id = w.id and d.status = 'pending') < now() - interval '15 seconds'
     limit 500`;
  return rows.map((row) => row.id);
}
