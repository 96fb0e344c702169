import { oneOf, ownedIn, type Sql } from './client.js';
import { oldestKept } from './id.js';
import retention from './retention.json' with { type: 'json' };
import type { WebhookEndpointRow } from './webhookEndpoints.js';

/** What came of a challenge or a test, by the names of the API. */
export type ProbeOutcome = {
  /** Of a challenge, whether it was answered. */
  readonly delivered: boolean;
  readonly http_status: number | null;
  readonly latency_ms: number | null;
  readonly error: string | null;
  /** How the answer to a test began. */
  readonly response: string | null;
};

/** A challenge or a test: one message to an endpoint. Its id is the `webhook-id`. */
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
 * Of an account in an hour. To a host: enough to set up an endpoint, and no flood for a stranger. To
 * all: as much for six endpoints, and no flood for a machine to which names without end lead.
 */
const anHour = { toHost: 10, toAll: 60 };

/** The host that a URL leads to, as probes are counted: with a dot at its end it is the same. */
const hostOf = (url: string) => new URL(url).hostname.replace(/\.$/, '');

/** How many an hour have been sent, to one host or, where that is null, to all; and until when. */
type ReachedLimit = Readonly<{ most: number; host: string | null; seconds: number }>;

/**
 * Adds a probe, or returns the limit of the account that is reached. One that no worker has begun
 * within 30 s, when its workflow is over, was not sent: it does not count, and may be added anew.
 */
export async function addProbe(
  sql: Sql,
  { id, accountId, endpointId, kind, url }: NewProbe,
): Promise<ReachedLimit | undefined> {
  const host = hostOf(url);
  // Until the transaction ends: of probes that are added at the same time each is counted.
  await sql`select pg_advisory_xact_lock(hashtextextended(${`probes ${accountId}`}, 0))`;
  // There is room again when the tenth, or sixtieth, of those that count longest has ended.
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

/** Nothing more is known of a probe whose worker has stopped: it may have arrived. */
const lost: ProbeOutcome = {
  ...{ delivered: false, http_status: null, latency_ms: null, response: null },
  error: 'unknown: the worker that sent it has stopped',
};

/** What has no outcome 25 s after it was begun gets none: a message takes 15 s, its activity 20 s. */
export const findProbe = oneOf(
  ownedIn<ProbeRow>(
    'webhook_probes',
    (sql) => sql`begun_at, coalesce(outcome, case
      when begun_at < now() - interval '25 seconds' then ${sql.json(lost)}::jsonb end) as outcome`,
  ),
);

/** The endpoint of a probe, as it is now, and what is sent where. */
export type BegunProbe = WebhookEndpointRow & Pick<NewProbe, 'kind'>;

/** Takes a probe to send it. One that was taken before is never sent again: it may have arrived. */
export async function beginProbe(sql: Sql, id: string): Promise<BegunProbe | undefined> {
  const [row] = await sql<BegunProbe[]>`
    with begun as (
      update webhook_probes set begun_at = now() where id = ${id} and begun_at is null returning *
    )
    select w.*, b.kind, b.url from begun b join webhook_endpoints w on w.id = b.endpoint_id
     where w.deleted_at is null`;
  return row;
}

/** Records what came of a probe. */
export async function endProbe(sql: Sql, id: string, outcome: ProbeOutcome): Promise<void> {
  await sql`update webhook_probes set outcome = ${sql.json(outcome)} where id = ${id}`;
}

/**
 * Deletes old probes, so many at the most; returns how many. Until then a repeat with the same
 * idempotency key is answered from the row.
 */
export async function purgeProbes(sql: Sql, limit: number): Promise<number> {
  const { count } = await sql`
    delete from webhook_probes where id in (
      select id from webhook_probes where id < ${oldestKept('webhookProbe', retention.webhook_probes.days)}
       order by id limit ${limit})`;
  return count;
}
