import { firstRow, oneOf, ownedIn, type Sql } from './client.js';
import { idCutoff } from './id.js';
import retention from './retention.json' with { type: 'json' };
import type { WebhookEndpointRow } from './webhookEndpoints.js';

/** The result of a challenge or a test, with the API's field names. */
export type ProbeOutcome = {
  /** For a challenge, whether it was answered. */
  readonly delivered: boolean;
  readonly http_status: number | null;
  readonly latency_ms: number | null;
  readonly error: string | null;
  /** The beginning of the response to a test. */
  readonly response: string | null;
};

/** A challenge or a test: one message to an endpoint. Its ID is the `webhook-id`. */
export type NewProbe = {
  readonly id: string;
  readonly accountId: string;
  readonly endpointId: string;
  readonly kind: 'challenge' | 'test';
  readonly url: string;
};
export type ProbeRow = {
  readonly begunAt: Date | null;
  readonly outcome: ProbeOutcome | null;
};

/**
 * Maximum numbers of probes per account and hour. To one host: enough to set up an endpoint, and too few
 * to flood a stranger. To all hosts: enough for six endpoints, and too few to flood a machine to which
 * any number of host names resolve.
 */
const anHour = { toHost: 10, toAll: 60 };

/** Returns a URL's host name for counting probes. A trailing dot does not make a different host. */
const hostOf = (url: string) => new URL(url).hostname.replace(/\.$/, '');

/** A limit of `most` probes an hour to one host (null: to all), reached for another `seconds`. */
type ReachedLimit = Readonly<{ most: number; host: string | null; seconds: number }>;

/**
 * Adds a probe, or returns the account's limit that is reached. A probe that no worker has begun within
 * 30 s, when its workflow has ended, was not sent. It does not count, and may be added again.
 */
export async function addProbe(
  sql: Sql,
  { id, accountId, endpointId, kind, url }: NewProbe,
): Promise<ReachedLimit | undefined> {
  const host = hostOf(url);
  // Held until the transaction ends, so that probes added at the same time are all counted.
  await sql`select pg_advisory_xact_lock(hashtextextended(${`probes ${accountId}`}, 0))`;
  // Of the 10 (or 60) probes that count longest, the first to expire makes room for another.
  const [reached] = await sql<ReachedLimit[]>`
    with counted as (
      select host, created_at +
             case when begun_at is null then interval '30 seconds' else interval '1 hour' end as ends_at
        from webhook_probes
       where account_id = ${accountId} and created_at > now() - interval '1 hour' and id <> ${id}
    ), last as (
      (select ends_at, host, ${anHour.toHost}::int as most from counted where host = ${host}
        order by ends_at desc offset ${anHour.toHost - 1} limit 1)
      union all
      (select ends_at, null, ${anHour.toAll}::int from counted
        order by ends_at desc offset ${anHour.toAll - 1} limit 1)
    )
    select most, host, ceil(extract(epoch from ends_at - now()))::int as seconds from last
     where ends_at > now() order by ends_at desc limit 1`;
  if (reached !== undefined) return reached;
  await sql`
    insert into webhook_probes (id, account_id, endpoint_id, kind, url, host)
    values (${id}, ${accountId}, ${endpointId}, ${kind}, ${url}, ${host})
    on conflict (id) do update set created_at = now(), url = excluded.url, host = excluded.host
     where webhook_probes.begun_at is null`;
  return undefined;
}

/** The outcome of a probe whose worker stopped: unknown, because the message may have arrived. */
const lost: ProbeOutcome = {
  ...{ delivered: false, http_status: null, latency_ms: null, response: null },
  error: 'unknown: the worker that sent it has stopped',
};

/** Finds a probe. Without an outcome after 25 s it is `lost`: a message takes 15 s, its activity 20 s. */
export const findProbe = oneOf(
  ownedIn<ProbeRow>(
    'webhook_probes',
    (sql) => sql`begun_at, coalesce(outcome, case
      when begun_at < now() - interval '25 seconds' then ${sql.json(lost)}::jsonb end) as outcome`,
  ),
);

/** The present endpoint of a probe, with the probe's kind and URL. */
export type BegunProbe = WebhookEndpointRow & Pick<NewProbe, 'kind'>;

/** Claims a probe for sending. A claimed probe is never sent again, because it may have arrived. */
export const beginProbe = (sql: Sql, id: string) =>
  firstRow(sql<BegunProbe[]>`
    with begun as (
      update webhook_probes set begun_at = now() where id = ${id} and begun_at is null returning *
    )
    select w.*, b.kind, b.url from begun b join webhook_endpoints w on w.id = b.endpoint_id
     where w.deleted_at is null`);

/** Records the outcome of a probe. */
export const endProbe = async (sql: Sql, id: string, outcome: ProbeOutcome) =>
  sql`update webhook_probes set outcome = ${sql.json(outcome)} where id = ${id}`;

/**
 * Deletes at most `limit` old probes. Until then, repeated requests with the same idempotency key are
 * answered from the row.
 */
export const purgeProbes = async (sql: Sql, limit: number) => sql`
  delete from webhook_probes where id in (
    select id from webhook_probes
     where id < ${await idCutoff(sql, 'webhookProbe', retention.webhook_probes.days)}
     order by id limit ${limit})`;
