import { oneOf, ownedIn, type Sql } from './client.js';
import { firstId } from './id.js';
import retention from './retention.json' with { type: 'json' };
import type { WebhookEndpointRow } from './webhookEndpoints.js';

/** What came of a challenge or a test, by the names of the API. */
export type ProbeOutcome = {
  /** Of a challenge, whether it was answered. */
  readonly delivered: boolean;
  readonly http_status: number | null;
  readonly latency_ms: number;
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
export type ProbeRow = NewProbe & {
  readonly begunAt: Date | null;
  readonly outcome: ProbeOutcome | null;
};

/** Of an account to a host in an hour: enough to set up an endpoint, and no flood for a stranger. */
export const probesOfHost = 10;

/** The host that a URL leads to, as probes are counted: with a dot at its end it is the same. */
export const hostOf = (url: string) => new URL(url).hostname.replace(/\.$/, '');

/**
 * Adds a probe, or returns the seconds until the account may add one to its host. One that no worker
 * has begun within 30 s, when its workflow is over, was not sent: it does not count, and may be added
 * anew.
 */
export async function addProbe(
  sql: Sql,
  { id, accountId, endpointId, kind, url }: NewProbe,
): Promise<number | undefined> {
  // Until the transaction ends: of probes that are added at the same time each is counted.
  await sql`select pg_advisory_xact_lock(hashtextextended(${`probes ${accountId}`}, 0))`;
  const [full] = await sql<{ seconds: number }[]>`
    select ceil(extract(epoch from created_at + interval '1 hour' - now()))::int as seconds
      from webhook_probes
     where account_id = ${accountId} and host = ${hostOf(url)}
       and created_at > now() - interval '1 hour'
       and (begun_at is not null or created_at > now() - interval '30 seconds') and id <> ${id}
     order by created_at desc offset ${probesOfHost - 1} limit 1`;
  if (full !== undefined) return full.seconds;
  await sql`
    insert into webhook_probes (id, account_id, endpoint_id, kind, url, host)
    values (${id}, ${accountId}, ${endpointId}, ${kind}, ${url}, ${hostOf(url)})
    on conflict (id) do update set created_at = now()`;
  return undefined;
}

export const findProbe = oneOf(ownedIn<ProbeRow>('webhook_probes'));

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

/** As long as a repeat with the same idempotency key is answered from the row. */
const keptMs = retention.webhook_probes.days * 24 * 60 * 60_000;

/** Deletes old probes, so many at the most; returns how many. */
export async function purgeProbes(sql: Sql, limit: number): Promise<number> {
  const { count } = await sql`
    delete from webhook_probes where id in (
      select id from webhook_probes where id < ${firstId('webhookProbe', Date.now() - keptMs)}
       order by id limit ${limit})`;
  return count;
}
