import type { AccountState } from '../domain/accountState.js';
import { byId, exactlyOne, type Sql } from './client.js';
import { newId } from './id.js';

export type Mode = 'test' | 'live';

export type Account = {
  readonly id: string;
  readonly mode: Mode;
  readonly name: string;
  readonly apiVersion: string;
  readonly state: AccountState;
  readonly createdAt: Date;
};

const columns = (sql: Sql) => sql`id, mode, name, api_version, state, created_at`;

export async function insertAccount(
  sql: Sql,
  account: Pick<Account, 'mode' | 'name' | 'apiVersion'>,
): Promise<Account> {
  const [row] = await sql<Account[]>`
    insert into accounts (id, mode, name, api_version)
    values (${newId('account')}, ${account.mode}, ${account.name}, ${account.apiVersion})
    returning ${columns(sql)}`;
  return exactlyOne(row);
}

export const findAccount = byId<Account>('accounts', columns);

/** Returns the newest accounts, at most a thousand, for operators. */
export function newestAccounts(sql: Sql): Promise<readonly Account[]> {
  return sql<Account[]>`
    select ${columns(sql)} from accounts order by created_at desc limit 1000`;
}

/** Changes the API version of an account. */
export async function setApiVersion(sql: Sql, id: string, apiVersion: string): Promise<Account> {
  const [row] = await sql<Account[]>`
    update accounts set api_version = ${apiVersion} where id = ${id} returning ${columns(sql)}`;
  return exactlyOne(row);
}

/** Freezes, opens or closes an account. The database may refuse the change. */
export async function setAccountState(sql: Sql, id: string, state: AccountState): Promise<void> {
  await sql`select set_account_state(${id}, ${state})`;
}

/** Waits until all decisions that began before the account's state was changed have finished. */
export async function awaitDecisions(sql: Sql, id: string): Promise<void> {
  await sql`select await_decisions(${id})`;
}
