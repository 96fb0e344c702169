import { bigints, type Sql, unnest } from './client.js';
import { claimable, isPaused, isProbed, pausedUntil } from './endpointHealth.js';
import { type EventRow, eventColumns, ofPayout } from './events.js';
import { oldestKept } from './id.js';
import retention from './retention.json' with { type: 'json' };
import type { WebhookEndpointRow } from './webhookEndpoints.js';

/** One (event, endpoint) pair with everything that an attempt needs. */
export type DueDelivery = KnownPair &
  Pick<WebhookEndpointRow, 'url' | 'secretNumber' | 'signature' | 'batching' | 'apiVersion'> & {
    /** Whether the secret before that signs as well. */
    readonly isOverlap: boolean;
    /** Whether its endpoint has failed since it last took something. */
    readonly isFailing: boolean;
    /** With the one that it is taken for. */
    readonly attempts: number;
    /** Of a first attempt without a row of its own. */
    readonly groupId: bigint | null;
  } & EventRow;

/**
 * Longer than what is taken may go unrecorded: an attempt begins within 4 s, takes at most 15 s,
 * and is written within 1 s (activities/delivery.ts). So no other run attempts it meanwhile, and
 * what a killed worker has taken is attempted again within half a minute.
 */
export const lease = '22 seconds';

/**
 * How long a first attempt is left to the process that wrote its event. What is due belongs to the
 * endpoint's own workflow. The same as the default of `next_attempt_at`.
 */
export const firstAttemptMs = 10_000;

export type Pair = { readonly eventId: string; readonly endpointId: string };

/**
 * A pair as it was when it was read or claimed. A claim moves the next attempt to the end of its lease:
 * by that time a later statement sees whether the pair has been claimed again since.
 */
export type KnownPair = Pair & { readonly nextAttemptAt: Date };

/** The account of a payout or batch that has events; '' where it has none. */
export async function accountOfEvents(sql: Sql, subjectId: string): Promise<string> {
  const [row] = await sql<{ accountId: string }[]>`
    select account_id from events where subject_id = ${subjectId} limit 1`;
  return row?.accountId ?? '';
}

/**
 * First attempts that were not made, at the events of these payouts and batches and of the batches
 * that they are items of, oldest event first. What is due belongs to the endpoint's own workflow, and
 * so does what waits for an endpoint that gets one request at a time.
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
  // Sorted here: for the order's sake the planner would walk all events by their sequence.
  return rows.toSorted((a, b) => (a.sequence < b.sequence ? -1 : 1));
}

/**
 * Takes pairs for their first attempt, and cancels those of endpoints that are gone. What
 * somebody else has taken meanwhile is left out.
 */
export async function claimFirstAttempts(
  sql: Sql,
  pairs: readonly Pair[],
): Promise<readonly DueDelivery[]> {
  // One pass for both: to find the pairs again would cost as much as to write them.
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
 * Releases what was not tried, as if it had not been claimed, and makes it due after a time. What
 * has been claimed again since it was read stays as it is.
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
 * Not `status = 'pending'`: by that the planner would take the index of all that is pending,
 * thousands of rows during a batch, in place of the few that are named. And a `case`, which it
 * cannot estimate: where the statistics are of a time when all was delivered, it would expect one
 * row, and compare each of thousands with each that is named, for seconds.
 */
const isPending = (sql: Sql) => sql`
  case when d.status in ('delivered', 'exhausted', 'canceled') then false else true end`;

/** Whether an endpoint is there to be sent anything. */
export const isListening = (sql: Sql) => sql`(w.status = 'enabled' and w.deleted_at is null)`;

/**
 * Where the lease of the last claim still stands as it was granted, its worker died before it recorded
 * anything. That attempt does not count, or workers that crash would use up the schedule.
 */
const claiming = (sql: Sql) => sql`
  attempts = d.attempts
    + coalesce(d.next_attempt_at - d.last_attempt_at <> ${lease}::interval, true)::int,
  last_attempt_at = now(), next_attempt_at = now() + ${lease}::interval`;

/** The pairs that a statement has `taken`, with everything that an attempt needs, oldest first. */
export const claimedRows = (sql: Sql) => sql`
  select t.*, w.url, w.secret_number, w.signature, w.batching, w.api_version,
         coalesce(w.previous_secret_until > now(), false) as is_overlap,
         w.failures > 0 as is_failing, ${eventColumns(sql)}
    from taken t join events e on e.id = t.event_id
    join webhook_endpoints w on w.id = t.endpoint_id ${ofPayout(sql)} order by e.sequence`;

/**
 * Takes pairs of an endpoint that are due, longest due first, or cancels them if it is gone. Of one
 * that has failed for long it takes one pair at a time, and none while it is paused.
 */
export async function claimDueDeliveries(
  sql: Sql,
  endpointId: string,
  most: number,
): Promise<readonly DueDelivery[]> {
  // A query of its own: the planner cannot estimate a limit that is a subquery.
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

export type AttemptResult = KnownPair & {
  readonly attempts: number;
  readonly groupId: bigint | null;
  readonly url: string;
  readonly status: 'delivered' | 'pending' | 'exhausted';
  /** When it began, and how long it took; null where nothing could be sent. */
  readonly at: Date;
  readonly latencyMs: number | null;
  readonly httpStatus: number | null;
  readonly error: string | null;
  /** How the answer of a failed attempt began. */
  readonly answer: string | null;
  /** For a pair that stays pending. */
  readonly retryInMs: number;
  readonly isFailing: boolean;
};

/**
 * Records attempts, those that failed in rows of their own as well; one whose delivery was claimed
 * anew meanwhile is that claim's to record.
 */
export async function recordAttempts(sql: Sql, results: readonly AttemptResult[]): Promise<void> {
  const first = new Set(results.filter(({ groupId }) => groupId !== null));
  const added = first.size === 0 ? [] : await addAttempted(sql, [...first]);
  const isAdded = new Set(added.map(({ eventId, endpointId }) => `${eventId} ${endpointId}`));
  // Of a group that has ended meanwhile there are rows, with the lease that it had.
  const rest = results.filter(
    ({ eventId, endpointId }) => !isAdded.has(`${eventId} ${endpointId}`),
  );
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

/** Writes what came of first attempts whose groups have not ended; returns which these are. */
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

const attempted = (sql: Sql, results: readonly AttemptResult[]) => sql`
  select *, now() + make_interval(secs => retry_in_ms / 1000.0) as retry_at
    from ${unnest(sql, results)`
      event_id text, endpoint_id text, group_id bigint, next_attempt_at timestamptz, status text,
       attempts int, at timestamptz, latency_ms int, http_status int, error text, answer text,
       retry_in_ms float8`}`;

/** Writes a row for each attempt of `t` that failed, if it was `recorded`. */
const failedOf = (sql: Sql) => sql`
  insert into delivery_attempts
         (event_id, endpoint_id, at, latency_ms, http_status, error, answer, next_attempt_at)
  select event_id, endpoint_id, at, latency_ms, http_status, error, answer,
         case when status = 'pending' then retry_at end
    from t join recorded using (event_id, endpoint_id) where status <> 'delivered'`;

/** Milliseconds until the endpoint's next attempt is due; undefined when nothing is pending. */
export async function nextAttemptInMs(sql: Sql, endpointId: string): Promise<number | undefined> {
  // The first row of an index, and no minimum with a count: that reads all that is pending.
  const [row] = await sql<{ inMs: number }[]>`
    select greatest(0, 1000 * extract(epoch from
             greatest(d.next_attempt_at, ${pausedUntil(sql)}) - now()))::float8 as in_ms
      from deliveries d join webhook_endpoints w on w.id = d.endpoint_id
     where d.endpoint_id = ${endpointId} and d.status = 'pending'
     order by d.next_attempt_at limit 1`;
  return row?.inMs;
}

/** Deletes deliveries of old events that are over, so many at the most; returns how many. The events stay. */
export async function purgeDeliveries(sql: Sql, limit: number): Promise<number> {
  // By the key, which begins with the time: no index has to be written for this.
  const { count } = await sql`
    delete from deliveries where (event_id, endpoint_id) in (
      select event_id, endpoint_id from deliveries
       where event_id < ${oldestKept('event', retention.deliveries.days)} and status <> 'pending'
       order by event_id limit ${limit})`;
  return count;
}

/** Deletes attempts at old events, so many at the most; returns how many. */
export async function purgeAttempts(sql: Sql, limit: number): Promise<number> {
  const { count } = await sql`
    delete from delivery_attempts where (event_id, endpoint_id, at) in (
      select event_id, endpoint_id, at from delivery_attempts
       where event_id < ${oldestKept('event', retention.delivery_attempts.days)}
       order by event_id limit ${limit})`;
  return count;
}

/**
 * Endpoints whose deliveries are overdue: no run works on them. By its first delivery alone:
 * with `exists` the planner may read everything that is pending.
 */
export async function overdueEndpoints(sql: Sql): Promise<readonly string[]> {
  const rows = await sql<{ id: string }[]>`
    select id from webhook_endpoints w
     where (select min(next_attempt_at) from deliveries d
             where d.endpoint_id = w.id and d.status = 'pending') < now() - interval '1 second'
       and not ${isPaused(sql)}
     limit 500`;
  return rows.map((row) => row.id);
}
