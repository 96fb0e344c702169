import type { Refusal } from '../domain/refusal.js';
import { type Sql, unnest } from './client.js';

/** A key bound to a request and an object. `fingerprints` maps each parameter to its value's keyed digest. */
export type KeyBinding = {
  readonly key: string;
  readonly route: string;
  readonly fingerprints: Readonly<Record<string, string>>;
  readonly objectId: string;
  readonly refusal: Refusal | null;
};

type BoundKey = KeyBinding & { readonly createdAt: Date };

/** Number of days for which a route's keys are kept. Null, for routes that move money, means forever. */
export type Retention = number | null;

/**
 * Binds each key to its object. Returns the existing bindings of keys that were already bound. A
 * concurrent request with one of the keys waits here until the first one commits or the lock timeout
 * expires. Keys are locked in sorted order, so that two batches with common keys cannot deadlock. A key
 * stays bound until it expires.
 */
export async function bindKeys(
  sql: Sql,
  accountId: string,
  bindings: readonly KeyBinding[],
  retention: Retention,
): Promise<readonly KeyBinding[]> {
  if (bindings.length === 0) return [];
  const rows = await sql<{ key: string }[]>`
    insert into idempotency_keys (account_id, key, route, fingerprints, object_id, refusal, expires_at)
    select ${accountId}, t.key, t.route, t.fingerprints, t.object_id, t.refusal,
           now() + make_interval(days => ${retention}::int)
      from ${unnest(sql, bindings)`
        key text, route text, fingerprints jsonb, object_id text, refusal jsonb`}
     order by t.key
    on conflict (account_id, key) do update
       set route = excluded.route, fingerprints = excluded.fingerprints,
           object_id = excluded.object_id, refusal = excluded.refusal,
           created_at = now(), expires_at = excluded.expires_at
     where idempotency_keys.expires_at <= now()
    returning key`;
  const bound = new Set(rows.map(({ key }) => key));
  const before = bindings.flatMap(({ key }) => (bound.has(key) ? [] : [key]));
  const found = await findKeys(sql, accountId, before);
  if (found.length < before.length) throw new Error('A bound idempotency key has vanished.');
  return found;
}

/** Returns the bindings of an account's keys. Keys that are unbound or expired are left out. */
export async function findKeys(
  sql: Sql,
  accountId: string,
  keys: readonly string[],
): Promise<readonly BoundKey[]> {
  if (keys.length === 0) return [];
  return sql<BoundKey[]>`
    select key, route, fingerprints, object_id, refusal, created_at from idempotency_keys
     where account_id = ${accountId} and key = any (${[...keys]})
       and (expires_at is null or expires_at > now())`;
}

/** Stores the refusal with which the key's request was answered. */
export async function recordKeyRefusal(
  sql: Sql,
  accountId: string,
  key: string,
  refusal: Refusal,
): Promise<void> {
  await sql`
    update idempotency_keys set refusal = ${sql.json(refusal)}
     where account_id = ${accountId} and key = ${key}`;
}

/**
 * Deletes at most `limit` expired keys. Each row is checked again when it is locked, because a request may
 * have bound its key again, even to a payout.
 */
export const purgeExpiredKeys = (sql: Sql, limit: number) => sql`
  delete from idempotency_keys where expires_at <= now() and (account_id, key) in (
    select account_id, key from idempotency_keys where expires_at <= now() limit ${limit})`;

/** Deletes a key whose request had no effect, so that the key may be used again. */
export async function deleteKey(sql: Sql, accountId: string, key: string): Promise<void> {
  await sql`delete from idempotency_keys where account_id = ${accountId} and key = ${key}`;
}
