import type { Sql } from './client.js';
import {
  type Keyring,
  unwrapAccountKey,
  type WrappedAccountKey,
  wrapAccountKey,
} from './personalData.js';

const columns = (sql: Sql) => sql`account_id, master_key_id, wrapped as account_key`;

/**
 * The account's key; its first beneficiary makes it, also where several are first. A process that lacks a
 * master key in use makes none: with a key that is not ours it would stop every other process.
 */
export async function accountKeyOf(sql: Sql, keyring: Keyring, accountId: string): Promise<Buffer> {
  const [wrapped] = await sql<WrappedAccountKey[]>`
    select ${columns(sql)} from account_keys where account_id = ${accountId}`;
  if (wrapped !== undefined) return unwrapAccountKey(keyring, wrapped);
  const { masterKeyId, accountKey } = wrapAccountKey(keyring, accountId);
  if (!(await hasMasterKeys(sql, keyring))) throw new Error('A master key in use is not loaded.');
  await sql`
    insert into account_keys (account_id, master_key_id, wrapped)
    values (${accountId}, ${masterKeyId}, ${accountKey}) on conflict (account_id) do nothing`;
  return accountKeyOf(sql, keyring, accountId);
}

/** Whether a process has every master key that wraps the key of an account. */
export async function hasMasterKeys(sql: Sql, keyring: Keyring): Promise<boolean> {
  const unknown = await sql`
    select from account_keys where master_key_id <> all (${[...keyring.keys()]}) limit 1`;
  return unknown.length === 0;
}

/**
 * Wraps every account's key by the first master key of the keyring; returns how many had another.
 * Rows that are only read are not waited for, so that nobody notices; and accounts are opened one by
 * one, by people, so a transaction holds them all.
 */
export async function rewrapAccountKeys(sql: Sql, keyring: Keyring): Promise<number> {
  const [current = ''] = keyring.keys();
  const others = await sql<WrappedAccountKey[]>`
    select ${columns(sql)} from account_keys where master_key_id <> ${current} for update`;
  for (const wrapped of others) {
    const { accountId } = wrapped;
    const key = unwrapAccountKey(keyring, wrapped);
    const { masterKeyId, accountKey } = wrapAccountKey(keyring, accountId, key);
    await sql`
      update account_keys set master_key_id = ${masterKeyId}, wrapped = ${accountKey}
       where account_id = ${accountId}`;
  }
  return others.length;
}
