import type { Refusal } from '../domain/refusal.js';
import { type Sql, unnest } from './client.js';

/** What a key is bound to. `fingerprints` maps each parameter to a keyed digest of its value. */
export type KeyBinding = {
  readonly key: string;
  readonly route: string;
  readonly fingerprints: Readonly<Record<string, string>>;
  readonly objectId: string;
  readonly refusal: Refusal | null;
};

/** How many days keys of routes that move no money are remembered; null is for ever. */
export type Retention = number | null;

/**
 * Binds keys, each to its object. Returns those that were bound before, with what they are
 * bound to. A concurrent request with one of the keys waits here for the first one to commit; the
 * lock time-out ends that. The keys are taken in their own order, so that two batches that share
 * some cannot wait for each other. One that is bound stays so until its time is over.
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

/** What keys of an account are bound to; those that are not, or no longer, are left out. */
export async function findKeys(
  sql: Sql,
  accountId: string,
  keys: readonly string[],
): Promise<readonly KeyBinding[]> {
  if (keys.length === 0) return [];
  return sql<KeyBinding[]>`
    select key, route, fingerprints, object_id, refusal from idempotency_keys
     where account_id = ${accountId} and key = any (${[...keys]})
       and (expires_at is null or expires_at > now())`;
}

/** Keeps the refusal that the key's request was answered with. */
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

/** Forgets keys whose time is over, so many at the most; returns how many. */
export async function purgeExpiredKeys(sql: Sql, limit: number): Promise<number> {
  const { count } = await sql`
    delete from idempotency_keys where (account_id, key) in (
      select account_id, key from idempotency_keys where expires_at <= now() limit ${limit})`;
  return count;
}

/** Forgets a key whose request came to nothing. */
export async function deleteKey(sql: Sql, accountId: string, key: string): Promise<void> {
  await sql`delete from idempotency_keys where account_id = ${accountId} and key = ${key}`;
}
