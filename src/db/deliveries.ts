import { bigints, idsIn, type Sql, unnest } from './client.js';
import { type Attempted, claimable, isPaused, isProbed, pausedUntil } from './endpointHealth.js';
import { type EventRow, eventColumns, ofPayout } from './events.js';
import { idCutoff } from './id.js';
import retention from './retention.json' with { type: 'json' };
import type { WebhookEndpointRow } from './webhookEndpoints.js';

/** An (event, endpoint) pair with everything that a delivery attempt needs. */
export type DueDelivery = KnownPair &
  Pick<WebhookEndpointRow, 'url' | 'secretNumber' | 'signature' | 'batching' | 'apiVersion'> & {
    /** Whether the previous secret signs as well. */
    readonly isOverlap: boolean;
    /** Includes the attempt for which it is claimed. */
    readonly attempts: number;
    /** Set for a first attempt that has no row of its own in `deliveries`. */
    readonly groupId: bigint | null;
  } & EventRow;

/**
 * Lease of a claimed delivery. Longer than the time until its attempt is recorded: it begins within 4 s,
 * takes at most 15 s and is written within 1 s (activities/delivery.ts). So no other run attempts it
 * meanwhile, and deliveries claimed by a killed worker are attempted again within half a minute.
 */
export const lease = '22 seconds';

/**
 * Time for which a first attempt is reserved for the process that wrote its event. After that it is due
 * and belongs to the endpoint's own workflow. Equal to the default of `next_attempt_at`.
 */
export const firstAttemptMs = 10_000;

export type Pair = { readonly eventId: string; readonly endpointId: string };

/**
 * A pair as of when it was read or claimed. A claim sets `nextAttemptAt` to the end of its lease, so a
 * later statement can tell by it whether the pair has been claimed again since.
 */
export type KnownPair = Pair & { readonly nextAttemptAt: Date };

/** Returns the account of a payout or batch that has events, or '' if it has none. */
export async function accountOfEvents(sql: Sql, subjectId: string): Promise<string> {
  const [row] = await sql<{ accountId: string }[]>`
    select account_id from events where subject_id = ${subjectId} limit 1`;
  return row?.accountId ?? '';
}

/**
 * Returns the first attempts yet to be made for events of these payouts and batches, and of the batches
 * that contain these payouts, oldest event first. Excludes deliveries that are due, and those to endpoints
 * that get one request at a time: both belong to the endpoint's own workflow.
 */
export async function pendingFirstAttempts(
  sql: Sql,
  subjectIds: readonly string[],
): Promise<readonly KnownPair[]> {
  const rows = await sql<(KnownPair & { readonly sequence: bigint })[]>`
    select d.event_id, d.endpoint_id, d.next_attempt_at, e.sequence
      from events e join deliveries d on d.event_id = e.id
     cross join lateral (select from webhook_endpoints w
                          where w.id = d.endpoint_id and not ${isProbed(sql)} limit 1) w
     where e.subject_id = any (array(
             select unnest(${subjectIds}::text[])
             union select batch_id from payouts where id = any (${subjectIds})))
       and case when ${isPending(sql)} then d.attempts = 0 and d.next_attempt_at > now()
                else false end`;
  // Sorted here, because for an `order by` the planner would scan all events in sequence order.
  return rows.toSorted((a, b) => (a.sequence < b.sequence ? -1 : 1));
}

/**
 * Claims pairs for their first attempt, and cancels those whose endpoint is deleted or not enabled.
 * Leaves out pairs that have been claimed by others meanwhile.
 */
export async function claimFirstAttempts(
  sql: Sql,
  pairs: readonly Pair[],
): Promise<readonly DueDelivery[]> {
  // One update does both, because finding the pairs a second time would cost as much as writing them.
  return sql<DueDelivery[]>`
    with found as (
      update deliveries d
         set status = case when ${isListening(sql)} then d.status else 'canceled' end,
             attempts = d.attempts + ${isListening(sql)}::int,
             last_attempt_at = case when ${isListening(sql)} then now() else d.last_attempt_at end,
             next_attempt_at = case when ${isListening(sql)} then now() + ${lease}::interval
                                    else d.next_attempt_at end
        from ${unnest(sql, pairs)`event_id text, endpoint_id text`}
        join webhook_endpoints w on w.id = t.endpoint_id
       where d.event_id = t.event_id and d.endpoint_id = t.endpoint_id
         and case when ${isPending(sql)} then d.attempts = 0 else false end
      returning d.event_id, d.endpoint_id, d.attempts, d.next_attempt_at,
                ${isListening(sql)} as is_taken
    ), taken as (
      select event_id, endpoint_id, attempts, next_attempt_at, null::bigint as group_id
        from found where is_taken
    )
    ${claimedRows(sql)}`;
}

/**
 * Releases pairs that were not attempted, as if they had not been claimed, and makes them due after
 * `dueInMs`. Pairs that have been claimed again since they were read are left unchanged.
 */
export async function releaseClaims(
  sql: Sql,
  pairs: readonly KnownPair[],
  dueInMs: number,
): Promise<void> {
  if (pairs.length === 0) return;
  await sql`
    update deliveries d
       set attempts = greatest(d.attempts - 1, 0),
           next_attempt_at = now() + make_interval(secs => ${dueInMs}::float8 / 1000),
           last_attempt_at = case when d.attempts > 1 then d.last_attempt_at end
      from ${unnest(sql, pairs)`event_id text, endpoint_id text, next_attempt_at timestamptz`}
     where d.event_id = t.event_id and d.endpoint_id = t.endpoint_id
       and d.next_attempt_at = t.next_attempt_at and ${isPending(sql)}`;
}

/**
 * Avoids `status = 'pending'`, for which the planner would use the index of all pending deliveries,
 * thousands during a batch, instead of looking up the few named. Uses a `case`, whose selectivity the
 * planner cannot estimate. With statistics from a time when everything was delivered, it would expect
 * one row and compare thousands of rows with each one named, which takes seconds.
 */
const isPending = (sql: Sql) => sql`
  case when d.status in ('delivered', 'exhausted', 'canceled') then false else true end`;

/** Condition: endpoint `w` is enabled and not deleted. */
export const isListening = (sql: Sql) => sql`(w.status = 'enabled' and w.deleted_at is null)`;

/**
 * The assignments of a claim. If the lease of the last claim is unchanged, its worker died before it
 * recorded anything. That attempt is not counted, or crashing workers would use up the retry schedule.
 */
const claiming = (sql: Sql) => sql`
  attempts = d.attempts
    + coalesce(d.next_attempt_at - d.last_attempt_at <> ${lease}::interval, true)::int,
  last_attempt_at = now(), next_attempt_at = now() + ${lease}::interval`;

/** Selects the pairs in `taken` with everything that an attempt needs, oldest event first. */
export const claimedRows = (sql: Sql) => sql`
  select t.*, w.url, w.secret_number, w.signature, w.batching, w.api_version,
         coalesce(w.previous_secret_until > now(), false) as is_overlap,
         ${eventColumns(sql)}
    from taken t join events e on e.id = t.event_id
    join webhook_endpoints w on w.id = t.endpoint_id ${ofPayout(sql)} order by e.sequence`;

/**
 * Claims due pairs of an endpoint, longest due first, or cancels them if the endpoint is deleted or not
 * enabled. If it has failed often, claims one pair at a time, and none while it is paused.
 */
export async function claimDueDeliveries(
  sql: Sql,
  endpointId: string,
  most: number,
): Promise<readonly DueDelivery[]> {
  // A separate query, because the planner cannot estimate a limit that is a subquery.
  const limit = await claimable(sql, endpointId, most);
  if (limit === 0) return [];
  const named = sql`due where (d.event_id, d.endpoint_id) = (due.event_id, due.endpoint_id)`;
  return sql<DueDelivery[]>`
    with due as (
      select d.event_id, d.endpoint_id, ${isListening(sql)} as is_listening
        from deliveries d join webhook_endpoints w on w.id = d.endpoint_id
       where d.endpoint_id = ${endpointId} and d.status = 'pending' and d.next_attempt_at <= now()
       order by d.next_attempt_at limit ${limit} for update of d skip locked
    ), dropped as (
      update deliveries d set status = 'canceled' from ${named} and not due.is_listening
    ), taken as (
      update deliveries d set ${claiming(sql)} from ${named} and due.is_listening
      returning d.event_id, d.endpoint_id, d.attempts, d.next_attempt_at, null::bigint as group_id
    )
    ${claimedRows(sql)}`;
}

export type AttemptResult = KnownPair &
  Attempted & {
    readonly attempts: number;
    readonly groupId: bigint | null;
    readonly httpStatus: number | null;
    readonly error: string | null;
    /** The beginning of the response to a failed attempt. */
    readonly answer: string | null;
    /** Only meaningful for a pair that stays pending. */
    readonly retryInMs: number;
  };

/**
 * Records the results of attempts, and adds a row for each failed attempt. Skips a delivery that has been
 * claimed again meanwhile, because the newer claim records its own result.
 */
export async function recordAttempts(sql: Sql, results: readonly AttemptResult[]): Promise<void> {
  const first = new Set(results.filter(({ groupId }) => groupId !== null));
  const added = first.size === 0 ? [] : await addAttempted(sql, [...first]);
  const pairs = new Set(added.map(({ eventId, endpointId }) => `${eventId} ${endpointId}`));
  // If a group has ended meanwhile, its deliveries have rows, with the group's lease.
  const rest = results.filter(({ eventId, endpointId }) => !pairs.has(`${eventId} ${endpointId}`));
  if (rest.length === 0) return;
  await sql`
    with t as materialized (${attempted(sql, rest)}), recorded as (
      update deliveries d
         set status = t.status, last_status = t.http_status, last_error = t.error,
             last_attempt_at = t.at, last_latency_ms = t.latency_ms, next_attempt_at = t.retry_at
        from t
       where d.event_id = t.event_id and d.endpoint_id = t.endpoint_id
         and d.next_attempt_at = t.next_attempt_at and ${isPending(sql)}
      returning d.event_id, d.endpoint_id
    )
    ${failedOf(sql)}`;
}

/** Adds rows with the results of first attempts whose groups have not ended; returns their pairs. */
async function addAttempted(sql: Sql, results: readonly AttemptResult[]): Promise<readonly Pair[]> {
  const groupIds = new Set(results.map(({ groupId }) => groupId));
  return sql<Pair[]>`
    with t as materialized (${attempted(sql, results)}), held as materialized (
      select id from delivery_groups where id = any (${bigints([...groupIds])}::bigint[])
       order by id for share
    ), recorded as (
      insert into deliveries (event_id, endpoint_id, status, attempts, last_status, last_error,
                              last_attempt_at, last_latency_ms, next_attempt_at)
      select event_id, endpoint_id, status, attempts, http_status, error, at, latency_ms, retry_at
        from t where group_id in (select id from held)
      on conflict do nothing
      returning event_id, endpoint_id
    ), failed as (${failedOf(sql)})
    select event_id, endpoint_id from recorded`;
}

/** A 410 from a URL that the endpoint has left says nothing about its new one, which is tried next. */
const attempted = (sql: Sql, results: readonly AttemptResult[]) => sql`
  select event_id, endpoint_id, group_id, next_attempt_at, attempts, at, latency_ms, http_status, error,
         answer, now() + make_interval(secs => retry_in_ms / 1000.0) as retry_at,
         case when http_status = 410 and url <> (select w.url from webhook_endpoints w where w.id = endpoint_id)
              then 'pending' else status end as status
    from ${unnest(sql, results)`
      event_id text, endpoint_id text, group_id bigint, next_attempt_at timestamptz, status text,
       attempts int, at timestamptz, latency_ms int, http_status int, error text, answer text,
       retry_in_ms float8, url text`}`;

/** Adds a row for each failed attempt in `t` whose pair was `recorded`. */
const failedOf = (sql: Sql) => sql`
  insert into delivery_attempts
         (event_id, endpoint_id, at, latency_ms, http_status, error, answer, next_attempt_at)
  select event_id, endpoint_id, at, latency_ms, http_status, error, answer,
         case when status = 'pending' then retry_at end
    from t join recorded using (event_id, endpoint_id) where status <> 'delivered'`;

/** Returns the time until the next attempt, 0 if the endpoint is disabled; undefined if none is pending. */
export async function nextAttemptInMs(sql: Sql, endpointId: string): Promise<number | undefined> {
  // Reads the first index entry. A minimum together with a count would read all pending deliveries.
  const [row] = await sql<{ inMs: number }[]>`
    select case when ${isListening(sql)} then greatest(0, 1000 * extract(epoch from
             greatest(d.next_attempt_at, ${pausedUntil(sql)}) - now())) else 0 end::float8 as in_ms
      from deliveries d join webhook_endpoints w on w.id = d.endpoint_id
     where d.endpoint_id = ${endpointId} and d.status = 'pending'
     order by d.next_attempt_at limit 1`;
  return row?.inMs;
}

/**
 * Deletes at most `limit` finished deliveries of old events. The events stay. Finds them by the primary key,
 * which begins with the time, so that no additional index is needed. The status is checked again when a row
 * is locked, because the event may just have been made due again.
 */
export const purgeDeliveries = async (sql: Sql, limit: number) => sql`
  delete from deliveries where status <> 'pending' and (event_id, endpoint_id) in (
    select event_id, endpoint_id from deliveries
     where event_id < ${await idCutoff(sql, 'event', retention.deliveries.days)}
       and status <> 'pending' order by event_id limit ${limit})`;

/** Deletes at most `limit` attempts to deliver old events. */
export const purgeAttempts = async (sql: Sql, limit: number) => sql`
  delete from delivery_attempts where (event_id, endpoint_id, at) in (
    select event_id, endpoint_id, at from delivery_attempts
     where event_id < ${await idCutoff(sql, 'event', retention.delivery_attempts.days)}
     order by event_id limit ${limit})`;

/**
 * Selects each endpoint with pending deliveries, and when its earliest one is due. Goes through their index
 * from endpoint to endpoint, so that those without any cost nothing: an account may delete millions.
 */
export const waitingEndpoints = (sql: Sql) => sql`
  with recursive waiting as (
    select '' as endpoint_id, null::timestamptz as next_attempt_at
    union all select d.* from waiting w cross join lateral (
      select endpoint_id, next_attempt_at from deliveries where status = 'pending'
         and endpoint_id > w.endpoint_id order by endpoint_id, next_attempt_at limit 1) d
  ) select * from waiting where endpoint_id <> ''`;

/** Returns endpoints with overdue deliveries, on which no run is working, longest overdue first. */
export const overdueEndpoints = (sql: Sql) =>
  idsIn(sql<{ id: string }[]>`
    select w.id from (${waitingEndpoints(sql)}) d join webhook_endpoints w on w.id = d.endpoint_id
     where d.next_attempt_at < now() - interval '1 second' and not ${isPaused(sql)}
     order by d.next_attempt_at limit 500`);
