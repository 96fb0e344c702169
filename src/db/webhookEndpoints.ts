import type { Fragment } from 'postgres';
import { byId, exactlyOne, firstRow, oneOf, onlyRow, ownedIn, type Sql, when } from './client.js';
import { type Page, type PageResult, pageRows, toPage } from './page.js';
import type { Keyring } from './personalData.js';
import { sealSecret } from './webhookSecrets.js';

export type WebhookEndpointRow = {
  readonly id: string;
  readonly accountId: string;
  readonly url: string;
  readonly events: readonly string[];
  /** `v1` signs with the endpoint's secret, `v1a` with the service's own key as well. */
  readonly signature: 'v1' | 'v1a';
  /** Whether a request may contain many events. */
  readonly batching: boolean;
  readonly description: string | null;
  readonly apiVersion: string;
  /** Unverified, and without events, until the endpoint has answered a challenge. */
  readonly status: 'unverified' | 'enabled' | 'disabled';
  readonly statusReason: string | null;
  /** Start of the present series of failed attempts; null if the last attempt succeeded. */
  readonly failingSince: Date | null;
  readonly secretNumber: number;
  /** When the present secret was set. */
  readonly secretSince: Date;
  readonly previousSecretUntil: Date | null;
  readonly createdAt: Date;
  readonly deletedAt: Date | null;
};

type Changeable = 'url' | 'events' | 'signature' | 'batching' | 'status' | 'apiVersion';

/** Fields that an update may change. Omitted fields stay the same. */
type EndpointChanges = {
  readonly [Name in Changeable]?: WebhookEndpointRow[Name] | undefined;
} & {
  /** An empty string removes the description. */
  readonly description?: string | undefined;
};

type NewEndpoint = EndpointChanges &
  Pick<WebhookEndpointRow, 'id' | 'accountId' | 'url' | 'events' | 'apiVersion'> & {
    readonly secret: string;
  };

/** Adds an endpoint and its first secret, which is sealed. */
export async function insertWebhookEndpoint(
  sql: Sql,
  keyring: Keyring,
  { signature = 'v1', batching = false, status = 'enabled', ...endpoint }: NewEndpoint,
): Promise<WebhookEndpointRow> {
  const { id, accountId, url, events, description, apiVersion, secret } = endpoint;
  const sealed = await sealSecret(sql, keyring, { accountId, endpointId: id, number: 1 }, secret);
  return onlyRow(sql<WebhookEndpointRow[]>`
    with stored as (
      insert into webhook_secrets (endpoint_id, number, sealed) values (${id}, 1, ${sealed})
    )
    insert into webhook_endpoints
      (id, account_id, url, events, description, signature, batching, api_version, status)
    values (${id}, ${accountId}, ${url}, ${[...events]}::text[],
      nullif(${description ?? ''}, ''), ${signature}, ${batching}, ${apiVersion}, ${status})
    returning *`);
}

/**
 * Counts the endpoints of an account. Other counts wait until this transaction ends, so that endpoints
 * added at the same time are all counted.
 */
export async function countWebhookEndpoints(sql: Sql, accountId: string): Promise<number> {
  // Not a lock on the account's row, which is needed to number the account's events.
  await sql`select pg_advisory_xact_lock(hashtextextended(${`endpoints ${accountId}`}, 0))`;
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from webhook_endpoints
     where account_id = ${accountId} and deleted_at is null`;
  return exactlyOne(row).count;
}

export const findWebhookEndpoint = oneOf(ownedIn<WebhookEndpointRow>('webhook_endpoints'));

/** Locks an endpoint that is not deleted, so that the second of two concurrent rotations sees the first. */
export const lockWebhookEndpoint = (sql: Sql, accountId: string, id: string) =>
  firstRow(sql<WebhookEndpointRow[]>`
    select * from webhook_endpoints
     where id = ${id} and account_id = ${accountId} and deleted_at is null for no key update`);

/** Finds an endpoint, even a deleted one. */
export const findRecipient = byId<WebhookEndpointRow>('webhook_endpoints');

/** Lists a page of the endpoints that are not deleted. They are few enough to sort without an index. */
export async function listWebhookEndpoints(
  sql: Sql,
  accountId: string,
  page: Page,
  { status }: { readonly status?: string | undefined },
): Promise<PageResult<WebhookEndpointRow>> {
  const rows = await sql<WebhookEndpointRow[]>`
    select * from webhook_endpoints
     where account_id = ${accountId} and deleted_at is null
       and ${when(sql, status, (wanted) => sql`status = ${wanted}`)}
       and ${pageRows(sql, page, ['created_at', 'id'])}`;
  return toPage(page, rows);
}

/** Maximum number of deliveries canceled per statement: a second of work. The workflow does the rest. */
const canceledAtOnce = 50_000;

/**
 * Cancels the pending deliveries of an endpoint if `condition` returns rows. Skips deliveries locked by
 * another transaction, which avoids deadlocks. The endpoint's workflow, which runs next, cancels those.
 */
export const cancelPending = (sql: Sql, id: string, condition: Fragment) => sql`
  update deliveries set status = 'canceled'
   where ctid = any (array(
     select ctid from deliveries
      where endpoint_id = ${id} and status = 'pending' and exists (${condition})
      order by next_attempt_at limit ${canceledAtOnce} for update skip locked))`;

/** Cancels the pending deliveries of an endpoint that is not enabled; returns whether there may be more. */
export async function cancelAll(sql: Sql, id: string): Promise<boolean> {
  const { count } = await cancelPending(
    sql,
    id,
    sql`select from webhook_endpoints where id = ${id} and (status <> 'enabled' or deleted_at is not null)`,
  );
  return count === canceledAtOnce;
}

/**
 * Updates an endpoint. Disabling it cancels its pending deliveries in the same statement. They stay
 * canceled when it is enabled again.
 */
export async function updateWebhookEndpoint(
  sql: Sql,
  accountId: string,
  id: string,
  { url, events, description, signature, batching, status, apiVersion }: EndpointChanges,
): Promise<WebhookEndpointRow | undefined> {
  // A new URL, or an endpoint that the customer has enabled again, starts with a clean health record.
  const isNew = sql`(coalesce(${url ?? null} <> url, false)
    or coalesce(${status ?? null}::text = 'enabled', false))`;
  return firstRow(sql<WebhookEndpointRow[]>`
    with updated as (
      update webhook_endpoints
         set url = coalesce(${url ?? null}, url),
             events = coalesce(${events ? [...events] : null}::text[], events),
             description = nullif(coalesce(${description ?? null}, description), ''),
             signature = coalesce(${signature ?? null}, signature),
             batching = coalesce(${batching ?? null}, batching),
             api_version = coalesce(${apiVersion ?? null}, api_version),
             status_reason = case ${status ?? null}::text when status then status_reason
               when 'disabled' then 'It was disabled by an update.' when 'enabled' then null
               else status_reason end,
             status = coalesce(${status ?? null}, status),
             failures = case when ${isNew} then 0 else failures end,
             failing_since = case when ${isNew} then null else failing_since end,
             failed_at = case when ${isNew} then null else failed_at end
       where id = ${id} and account_id = ${accountId} and deleted_at is null returning *
    ), dropped as (
      ${cancelPending(sql, id, sql`select from updated where status = 'disabled'`)}
    )
    select * from updated`);
}

/** Enables an endpoint if it is unverified and still has the URL that answered the challenge. */
export const enableVerified = async (sql: Sql, id: string, url: string) => sql`
  update webhook_endpoints set status = 'enabled'
   where id = ${id} and url = ${url} and status = 'unverified' and deleted_at is null`;

/** Marks an endpoint as deleted, cancels its pending deliveries and deletes its secrets, in one statement. */
export const deleteWebhookEndpoint = (sql: Sql, accountId: string, id: string) =>
  firstRow(sql<WebhookEndpointRow[]>`
    with gone as (
      update webhook_endpoints set deleted_at = now()
       where id = ${id} and account_id = ${accountId} and deleted_at is null returning *
    ), dropped as (
      ${cancelPending(sql, id, sql`select from gone`)}
    ), forgotten as (
      delete from webhook_secrets where endpoint_id in (select id from gone)
    )
    select * from gone`);

/**
 * Replaces the secret of a locked endpoint. The previous secret signs as well for `overlapHours`; if that
 * is 0, it is deleted at once. Any older secret is deleted in either case.
 */
export async function rotateWebhookSecret(
  sql: Sql,
  keyring: Keyring,
  { id, accountId, secretNumber }: WebhookEndpointRow,
  { secret, overlapHours }: { readonly secret: string; readonly overlapHours: number },
): Promise<WebhookEndpointRow> {
  const number = secretNumber + 1;
  const sealed = await sealSecret(sql, keyring, { accountId, endpointId: id, number }, secret);
  return onlyRow(sql<WebhookEndpointRow[]>`
    with ended as (
      delete from webhook_secrets
       where endpoint_id = ${id} and number < ${overlapHours === 0 ? number : secretNumber}
    ), added as (
      insert into webhook_secrets (endpoint_id, number, sealed) values (${id}, ${number}, ${sealed})
    )
    update webhook_endpoints
       set secret_number = ${number}, secret_since = now(),
           previous_secret_until = now() + nullif(make_interval(hours => ${overlapHours}), '0')
     where id = ${id} returning *`);
}

/** Ends the overlap of a secret rotation; changes nothing if there is none. */
export const revokeOldSecret = (sql: Sql, accountId: string, id: string) =>
  firstRow(sql<WebhookEndpointRow[]>`
    with revoked as (
      update webhook_endpoints set previous_secret_until = null
       where id = ${id} and account_id = ${accountId} and deleted_at is null returning *
    ), ended as (
      delete from webhook_secrets s using revoked r
       where s.endpoint_id = r.id and s.number < r.secret_number
    )
    select * from revoked`);
