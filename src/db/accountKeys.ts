import type { Sql } from './client.js';
import {
  type Keyring,
  unwrapAccountKey,
  type WrappedAccountKey,
  wrapAccountKey,
} from './personalData.js';

const columns = (sql: Sql) => sql`account_id, master_key_id, wrapped as account_key`;

/**
 * Returns the account's key, and creates it if there is none. Concurrent calls agree on one key. Throws
 * instead if this process lacks a master key in use: its own master key may be wrong, and a key wrapped
 * by that would stop every other process (hasMasterKeys).
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

/** Whether this process has every master key that wraps an account's key. */
export async function hasMasterKeys(sql: Sql, keyring: Keyring): Promise<boolean> {
  const unknown = await sql`
    select from account_keys where master_key_id <> all (${[...keyring.keys()]}) limit 1`;
  return unknown.length === 0;
}

/**
 * Rewraps all account keys that are not wrapped by the keyring's first master key; returns how many.
 * Runs while the service is in use, because plain reads do not wait for these row locks. One
 * transaction is enough, because accounts are few: people open them one by one.
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
