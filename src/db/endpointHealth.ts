import { exactlyOne, type Sql, unnest } from './client.js';
import { cancelPending, type WebhookEndpointRow } from './webhookEndpoints.js';

type Attempted = {
  readonly endpointId: string;
  /** Where it went: of an endpoint that has moved since it says nothing. */
  readonly url: string;
  readonly status: string;
  readonly at: Date;
  /** Null where nothing was sent, by a fault of ours. */
  readonly latencyMs: number | null;
  /** Whether the endpoint had failed before it. */
  readonly isFailing: boolean;
};

/**
 * After so many failures in a row an endpoint gets one request at a time. More than fail while a
 * receiver restarts under 16 requests at once.
 */
export const failuresToPause = 20;

/** Whether an endpoint `w` is sent one request at a time, to see whether it has recovered. */
export const isProbed = (sql: Sql) => sql`w.failures >= ${failuresToPause}`;

/**
 * Until when a probed endpoint `w` is sent nothing: a quarter of the time that it has failed for, so
 * that an outage lasts at most a quarter longer, but at least 30 s and at most 15 min. Null otherwise.
 */
export const pausedUntil = (sql: Sql) => sql`
  case when ${isProbed(sql)} then w.failed_at + greatest('30 s'::interval,
    least('15 min'::interval, (w.failed_at - w.failing_since) / 4)) end`;

/** Whether an endpoint `w` is sent nothing at present, as it has failed. */
export const isPaused = (sql: Sql) => sql`coalesce(${pausedUntil(sql)} > now(), false)`;

/** How many deliveries of an endpoint may be claimed at once now, where `most` is the most. */
export async function claimable(sql: Sql, endpointId: string, most: number): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select case when ${isPaused(sql)} then 0 when ${isProbed(sql)} then 1 else ${most}::int end as count
      from webhook_endpoints w where w.id = ${endpointId}`;
  return exactlyOne(row).count;
}

/** The retry schedule pauses for up to 24 h: after a longer one an endpoint fails anew. */
const sameOutage = '25 hours';

/** An endpoint that has taken nothing for so long is disabled. */
const longestOutage = '5 days';

/**
 * Updates the health of endpoints from the outcome of attempts, and returns those that have taken
 * nothing for five days in which they were tried. A statement of its own: recording attempts locks
 * deliveries, and disabling an endpoint locks the endpoint first and its deliveries after it.
 */
export async function recordHealth(
  sql: Sql,
  results: readonly Attempted[],
): Promise<readonly Pick<Attempted, 'endpointId' | 'url'>[]> {
  const sent = results.filter(({ latencyMs }) => latencyMs !== null);
  const byEndpoint = Map.groupBy(sent, ({ endpointId, url }) => `${endpointId} ${url}`);
  const tallies = [...byEndpoint.values()].flatMap(tallyOf);
  if (tallies.length === 0) return [];
  // By the clock of the database: a worker's own may be wrong by days.
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
 * The result of the attempts at an endpoint: one that succeeded is enough for it to be well. Requests
 * count and not events: those of one request have the very same time.
 */
function tallyOf(results: readonly Attempted[]) {
  const isWell = results.some(({ status }) => status === 'delivered');
  const [first] = results;
  if (first === undefined || (isWell && !results.some(({ isFailing }) => isFailing))) return [];
  const requests = new Set(results.map(({ at }) => at));
  return [{ endpointId: first.endpointId, url: first.url, failed: isWell ? 0 : requests.size }];
}

/** Ends the pauses of endpoints that somebody wants to be sent something, as they have recovered. */
export async function endPauses(sql: Sql, endpointIds: readonly string[]): Promise<void> {
  await sql`
    update webhook_endpoints set failures = ${failuresToPause - 1}
     where id = any (${endpointIds}) and failures >= ${failuresToPause}`;
}

/**
 * Disables an enabled endpoint that still has the URL, and cancels its pending deliveries. Returns it, or
 * undefined where there is none.
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
