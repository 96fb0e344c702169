import type { Sql } from './client.js';
import { newId } from './id.js';

export type Mode = 'test' | 'live';

export type Account = {
  readonly id: string;
  readonly mode: Mode;
  readonly name: string;
  readonly apiVersion: string;
  readonly createdAt: Date;
};

export type ApiKey = {
  readonly id: string;
  readonly accountId: string;
  readonly lastFour: string;
  readonly createdAt: Date;
  readonly revokedAt: Date | null;
};

const columns = ['id', 'mode', 'name', 'api_version', 'created_at'] as const;

export async function insertAccount(
  sql: Sql,
  account: { readonly mode: Mode; readonly name: string; readonly apiVersion: string },
): Promise<Account> {
  const [row] = await sql<Account[]>`
    insert into accounts (id, mode, name, api_version)
    values (${newId('account')}, ${account.mode}, ${account.name}, ${account.apiVersion})
    returning ${sql(columns)}`;
  return only(row);
}

export async function findAccount(sql: Sql, id: string): Promise<Account | undefined> {
  const [row] = await sql<Account[]>`select ${sql(columns)} from accounts where id = ${id}`;
  return row;
}

/** Moves an account to another API version. */
export async function setApiVersion(sql: Sql, id: string, apiVersion: string): Promise<Account> {
  const [row] = await sql<Account[]>`
    update accounts set api_version = ${apiVersion} where id = ${id} returning ${sql(columns)}`;
  return only(row);
}

/** The account of a key that is not revoked; the key is known by its SHA-256 alone. */
export async function findAccountByKeyHash(
  sql: Sql,
  keyHash: Buffer,
): Promise<Account | undefined> {
  const [row] = await sql<Account[]>`
    select a.id, a.mode, a.name, a.api_version, a.created_at
      from api_keys k join accounts a on a.id = k.account_id
     where k.key_hash = ${keyHash} and k.revoked_at is null`;
  return row;
}

export async function insertApiKey(
  sql: Sql,
  key: { readonly accountId: string; readonly keyHash: Buffer; readonly lastFour: string },
): Promise<ApiKey> {
  const [row] = await sql<ApiKey[]>`
    insert into api_keys (id, account_id, key_hash, last_four)
    values (${newId('apiKey')}, ${key.accountId}, ${key.keyHash}, ${key.lastFour})
    returning id, account_id, last_four, created_at, revoked_at`;
  return only(row);
}

export async function listApiKeys(sql: Sql, accountId: string): Promise<readonly ApiKey[]> {
  return sql<ApiKey[]>`
    select id, account_id, last_four, created_at, revoked_at
      from api_keys where account_id = ${accountId} order by id`;
}

/** Revokes a key of the account; false when there is no such active key. */
export async function revokeApiKey(sql: Sql, accountId: string, id: string): Promise<boolean> {
  const rows = await sql`
    update api_keys set revoked_at = now()
     where id = ${id} and account_id = ${accountId} and revoked_at is null returning id`;
  return rows.length === 1;
}

/** The row that a statement cannot but return. */
export function only<T>(row: T | undefined): T {
  if (row === undefined) throw new Error('The statement returned no row.');
  return row;
}
