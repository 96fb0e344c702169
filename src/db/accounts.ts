import type { AccountState } from '../domain/accountState.js';
import { byId, mostRead, onlyRow, type Sql } from './client.js';
import { newId } from './id.js';

/**
 * Whether an account's payouts move money. A live one has its own rail (domain/corridor.ts), younger rates
 * (`rateAgesOf` in config.ts), never the figures for tests (migration 0044), and no `POST /v1/test/fund`. Keys, ids and
 * entries belong to one account, so to one mode.
 */
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

export const insertAccount = (sql: Sql, account: Pick<Account, 'mode' | 'name' | 'apiVersion'>) =>
  onlyRow(sql<Account[]>`
    insert into accounts (id, mode, name, api_version)
    values (${newId('account')}, ${account.mode}, ${account.name}, ${account.apiVersion})
    returning ${columns(sql)}`);

export const findAccount = byId<Account>('accounts', columns);

/** Returns the newest accounts, for operators. */
export const newestAccounts = (sql: Sql) => sql<Account[]>`
  select ${columns(sql)} from accounts order by created_at desc limit ${mostRead}`;

/** Changes the API version of an account. */
export const setApiVersion = (sql: Sql, id: string, apiVersion: string) =>
  onlyRow(sql<Account[]>`
    update accounts set api_version = ${apiVersion} where id = ${id} returning ${columns(sql)}`);

/** Freezes, opens or closes an account. The database may refuse the change. */
export const setAccountState = async (sql: Sql, id: string, state: AccountState) =>
  sql`select set_account_state(${id}, ${state})`;

/** Waits until all decisions that began before the account's state was changed have finished. */
export const awaitDecisions = async (sql: Sql, id: string) => sql`select await_decisions(${id})`;
