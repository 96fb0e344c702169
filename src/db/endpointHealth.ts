import { exactlyOne, type Sql, unnest } from './client.js';
import { cancelPending, type WebhookEndpointRow } from './webhookEndpoints.js';

export type Attempted = {
  readonly endpointId: string;
  /** The URL of the request. If the endpoint's URL has changed since, the result does not count. */
  readonly url: string;
  readonly status: 'delivered' | 'pending' | 'exhausted';
  /** When the attempt began. */
  readonly at: Date;
  /** Its duration. Null if nothing was sent because of an error on our side. */
  readonly latencyMs: number | null;
};

/**
 * Number of consecutive failures after which an endpoint gets one request at a time. More than fail when
 * a receiver restarts with 16 requests in flight.
 */
export const failuresToPause = 20;

/** Condition: endpoint `w` gets one request at a time, to probe whether it has recovered. */
export const isProbed = (sql: Sql) => sql`w.failures >= ${failuresToPause}`;

/**
 * The end of the pause of a probed endpoint `w`, null if it is not probed. After each failure nothing is
 * sent for a quarter of the outage so far, so that we prolong an outage by a quarter at most. A pause is
 * at least 30 s and at most 15 min.
 */
export const pausedUntil = (sql: Sql) => sql`
  case when ${isProbed(sql)} then w.failed_at + greatest('30 s'::interval,
    least('15 min'::interval, (w.failed_at - w.failing_since) / 4)) end`;

/** Condition: endpoint `w` has failed and is paused at present. */
export const isPaused = (sql: Sql) => sql`coalesce(${pausedUntil(sql)} > now(), false)`;

/** Returns how many deliveries of an endpoint may be claimed at once now, at most `most`. */
export async function claimable(sql: Sql, endpointId: string, most: number): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select case when ${isPaused(sql)} then 0 when ${isProbed(sql)} then 1 else ${most}::int end as count
      from webhook_endpoints w where w.id = ${endpointId}`;
  return exactlyOne(row).count;
}

/** A failure later than this after the previous one begins a new outage. Retries are up to 24 h apart. */
const sameOutage = '25 hours';

/** Condition: the outage of endpoint `w` goes on. Without events, nothing is attempted and nothing ends it. */
export const failedLately = (sql: Sql) => sql`
  coalesce(w.failed_at > now() - ${sameOutage}::interval, false)`;

/** An endpoint without a successful delivery for this long is disabled. */
export const longestOutage = '5 days';

/**
 * Updates the health of endpoints from the results of attempts. Returns enabled endpoints whose attempts
 * have all failed for five days. Separate from recording the attempts, which locks deliveries: disabling
 * an endpoint locks the endpoint first and then its deliveries.
 */
export async function recordHealth(
  sql: Sql,
  results: readonly Attempted[],
): Promise<readonly Pick<Attempted, 'endpointId' | 'url'>[]> {
  const sent = results.filter(({ latencyMs }) => latencyMs !== null);
  const byEndpoint = Map.groupBy(sent, ({ endpointId, url }) => `${endpointId} ${url}`);
  // In the order of the endpoints, so that two runs that attempt the same ones cannot deadlock.
  const tallies = [...byEndpoint.values()]
    .flatMap(tallyOf)
    .toSorted((a, b) => (a.endpointId < b.endpointId ? -1 : 1));
  if (tallies.length === 0) return [];
  // Use the database's clock, because a worker's clock may be wrong by days.
  const rows = await sql<{ endpointId: string; url: string; isOver: boolean }[]>`
    update webhook_endpoints w
       set failures = case when t.failed > 0 then w.failures + t.failed else 0 end,
           failed_at = case when t.failed > 0 then now() end,
           failing_since = case when t.failed = 0 then null
             when w.failed_at > now() - ${sameOutage}::interval then w.failing_since else now() end
      from ${unnest(sql, tallies)`endpoint_id text, url text, failed int`}
     where w.id = t.endpoint_id and w.url = t.url and (t.failed > 0 or w.failures > 0)
    returning t.endpoint_id, t.url, w.status = 'enabled' and ${isProbed(sql)}
              and w.failing_since < now() - ${longestOutage}::interval as is_over`;
  return rows.filter(({ isOver }) => isOver);
}

/**
 * Summarizes the attempts at an endpoint. A single success makes it healthy. Counts failed requests, not
 * events: all events of one request share the same `at` object.
 */
function tallyOf(results: readonly Attempted[]) {
  const isWell = results.some(({ status }) => status === 'delivered');
  const [first] = results;
  if (first === undefined) return [];
  const requests = new Set(results.map(({ at }) => at));
  return [{ endpointId: first.endpointId, url: first.url, failed: isWell ? 0 : requests.size }];
}

/** Ends the pauses of endpoints to which somebody requests deliveries, presumably since they recovered. */
export async function endPauses(sql: Sql, endpointIds: readonly string[]): Promise<void> {
  await sql`
    update webhook_endpoints set failures = ${failuresToPause - 1}
     where id = any (${endpointIds}) and failures >= ${failuresToPause}`;
}

/**
 * Disables an endpoint that is enabled and still has this URL, and cancels its pending deliveries. Returns
 * the endpoint, or undefined if there is no such endpoint.
 */
export async function disableEndpoint(
  sql: Sql,
  { endpointId: id, url }: Pick<Attempted, 'endpointId' | 'url'>,
  reason: string,
): Promise<WebhookEndpointRow | undefined> {
  const [row] = await sql<WebhookEndpointRow[]>`
    with disabled as (
      update webhook_endpoints set status = 'disabled', status_reason = ${reason}
       where id = ${id} and url = ${url} and status = 'enabled' and deleted_at is null returning *
    ), dropped as (
      ${cancelPending(sql, id, sql`select from disabled`)}
    )
    select * from disabled`;
  return row;
}
