import { exactlyOne, type Sql } from './client.js';
import { newId } from './id.js';

export type Mode = 'test' | 'live';

export type Account = {
  readonly id: string;
  readonly mode: Mode;
  readonly name: string;
  readonly apiVersion: string;
  readonly createdAt: Date;
};

const columns = ['id', 'mode', 'name', 'api_version', 'created_at'] as const;

export async function insertAccount(
  sql: Sql,
  account: Pick<Account, 'mode' | 'name' | 'apiVersion'>,
): Promise<Account> {
  const [row] = await sql<Account[]>`
    insert into accounts (id, mode, name, api_version)
    values (${newId('account')}, ${account.mode}, ${account.name}, ${account.apiVersion})
    returning ${sql(columns)}`;
  return exactlyOne(row);
}

export async function findAccount(sql: Sql, id: string): Promise<Account | undefined> {
  const [row] = await sql<Account[]>`select ${sql(columns)} from accounts where id = ${id}`;
  return row;
}

/** Moves an account to another API version. */
export async function setApiVersion(sql: Sql, id: string, apiVersion: string): Promise<Account> {
  const [row] = await sql<Account[]>`
    update accounts set api_version = ${apiVersion} where id = ${id} returning ${sql(columns)}`;
  return exactlyOne(row);
}
