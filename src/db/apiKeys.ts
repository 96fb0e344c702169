import { createHash, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { allScopes, type Scope } from '../domain/scope.js';
import type { Account, Mode } from './accounts.js';
import { byId, onlyRow, type Sql } from './client.js';
import { newId } from './id.js';

const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const bodyLength = 30;
const checksumLength = 6;

/** Creates a key: `cor_test_` or `cor_live_`, 30 random characters and a checksum that detects typos. */
export function createApiKey(mode: Mode): string {
  return createKey(`cor_${mode}_`);
}

/** Creates a key: the prefix, 30 random characters and a checksum of both. */
export function createKey(prefix: string): string {
  const body = Array.from({ length: bodyLength }, () => alphabet.charAt(randomInt(62))).join('');
  return prefix + body + checksumOf(prefix + body);
}

/** Whether a text has the format of a key and a correct checksum. Does not query the database. */
export function isWellFormedKey(text: string, prefix = /^cor_(test|live)_/): boolean {
  if (!/^[0-9A-Za-z]{36}$/.test(text.replace(prefix, ''))) return false;
  return text.endsWith(checksumOf(text.slice(0, -checksumLength)));
}

/** Returns the stored hash of a key. With 178 random bits, a key does not need a slow hash. */
export function hashOfKey(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

function checksumOf(text: string): string {
  let rest = crc32(text);
  let digits = '';
  for (let i = 0; i < checksumLength; i += 1) {
    digits = alphabet.charAt(rest % 62) + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}

export type ApiKey = {
  readonly id: string;
  readonly accountId: string;
  /** Keys with the same name replace each other. Two may be active while one is being rolled. */
  readonly name: string;
  readonly scopes: readonly Scope[];
  /** Addresses and subnets from which the key is accepted; null means any. */
  readonly allowed: readonly string[] | null;
  readonly lastFour: string;
  readonly createdAt: Date;
  readonly expiresAt: Date | null;
  /** Accurate to one minute. */
  readonly lastUsedAt: Date | null;
  readonly revokedAt: Date | null;
  readonly isActive: boolean;
};

export type NewApiKey = Pick<ApiKey, 'accountId' | 'lastFour'> &
  Partial<Pick<ApiKey, 'name' | 'scopes' | 'allowed' | 'expiresAt'>> & {
    /** SHA-256; the key itself is not stored. */
    readonly keyHash: Buffer;
  };

/** The account and key that authenticate a request. */
export type KeyHolder = Pick<ApiKey, 'scopes' | 'allowed' | 'expiresAt'> & {
  readonly account: Account;
  readonly keyId: string;
  readonly isExpired: boolean;
  /** Whether a use within the last minute is already recorded. */
  readonly isUseNoted: boolean;
};

type HolderRow = Account & Omit<KeyHolder, 'account'>;

/** Finds the holder of a key that is not revoked, in one statement by the unique index on the hash. */
export async function findKeyHolder(sql: Sql, keyHash: Buffer): Promise<KeyHolder | undefined> {
  const [row] = await sql<HolderRow[]>`
    select a.id, a.mode, a.name, a.api_version, a.state, a.created_at, k.id as key_id, k.scopes,
           k.allowed, k.expires_at, coalesce(k.expires_at <= now(), false) as is_expired,
           coalesce(k.last_used_at > now() - interval '1 minute', false) as is_use_noted
      from api_keys k join accounts a on a.id = k.account_id
     where k.key_hash = ${keyHash} and k.revoked_at is null`;
  if (row === undefined) return undefined;
  const { keyId, scopes, allowed, expiresAt, isExpired, isUseNoted, ...account } = row;
  return { account, keyId, scopes, allowed, expiresAt, isExpired, isUseNoted };
}

/** Records that a key was used. Of concurrent requests only one writes, and the others do not wait. */
export const recordUse = async (sql: Sql, keyId: string) => sql`
  update api_keys set last_used_at = now() where id in (
    select id from api_keys where id = ${keyId}
       and coalesce(last_used_at, '-infinity') <= now() - interval '1 minute'
       for no key update skip locked)`;

const columns = (sql: Sql) => sql`
  id, account_id, name, scopes, allowed, last_four, created_at, expires_at, last_used_at, revoked_at,
  revoked_at is null and coalesce(expires_at > now(), true) as is_active`;

/** Stores a key. By default it is named `default`, has all scopes and never expires. */
export async function insertApiKey(sql: Sql, key: NewApiKey): Promise<ApiKey> {
  const { name = 'default', scopes = allScopes, allowed = null, expiresAt = null } = key;
  return onlyRow(sql<ApiKey[]>`
    insert into api_keys (id, account_id, key_hash, last_four, name, scopes, allowed, expires_at)
    values (${newId('apiKey')}, ${key.accountId}, ${key.keyHash}, ${key.lastFour}, ${name},
      ${[...scopes]}::text[], ${allowed && [...allowed]}::text[], ${expiresAt})
    returning ${columns(sql)}`);
}

/** Counts active keys with a name. Locks the account, so other counts wait until this transaction ends. */
export async function countActiveKeys(sql: Sql, accountId: string, name: string): Promise<number> {
  await sql`select from accounts where id = ${accountId} for no key update`;
  const rows = await sql`
    select from api_keys where account_id = ${accountId} and name = ${name}
       and revoked_at is null and coalesce(expires_at > now(), true)`;
  return rows.count;
}

export const findApiKey = byId<ApiKey>('api_keys', columns);

export const listApiKeys = async (sql: Sql, accountId: string) => sql<ApiKey[]>`
  select ${columns(sql)} from api_keys where account_id = ${accountId} order by name, id`;

/** Makes a key expire after some hours, unless it already expires sooner. */
export const expireApiKey = (sql: Sql, id: string, afterHours: number) =>
  onlyRow(sql<ApiKey[]>`
    update api_keys set expires_at = least(expires_at, now() + make_interval(hours => ${afterHours}))
     where id = ${id} returning ${columns(sql)}`);

/** Revokes a key; returns false if it is unknown or already revoked. */
export async function revokeApiKey(sql: Sql, id: string): Promise<boolean> {
  const rows = await sql`
    update api_keys set revoked_at = now() where id = ${id} and revoked_at is null returning id`;
  return rows.length === 1;
}
