import { type Sql, unnest } from './client.js';
import {
  type Keyring,
  unwrapAccountKey,
  type WrappedAccountKey,
  wrapAccountKey,
} from './personalData.js';

const columns = (sql: Sql) => sql`account_id, master_key_id, wrapped as account_key`;

/** The account's key; its first beneficiary makes it, also where several are first. */
export async function accountKeyOf(sql: Sql, keyring: Keyring, accountId: string): Promise<Buffer> {
  const [wrapped] = await sql<WrappedAccountKey[]>`
    select ${columns(sql)} from account_keys where account_id = ${accountId}`;
  if (wrapped !== undefined) return unwrapAccountKey(keyring, wrapped);
  const { masterKeyId, accountKey } = wrapAccountKey(keyring, accountId);
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
 * Accounts are opened one by one, by people, so that all of them are one statement's worth; and rows
 * that are read are not waited for, so that nobody notices.
 */
export async function rewrapAccountKeys(sql: Sql, keyring: Keyring): Promise<number> {
  const [current = ''] = keyring.keys();
  const others = await sql<WrappedAccountKey[]>`
    select ${columns(sql)} from account_keys where master_key_id <> ${current} for update`;
  const rewrapped = others.map((wrapped) => {
    const key = unwrapAccountKey(keyring, wrapped);
    const { accountKey, ...row } = wrapAccountKey(keyring, wrapped.accountId, key);
    return { ...row, wrapped: `\\x${accountKey.toString('hex')}` };
  });
  await sql`
    update account_keys k set master_key_id = t.master_key_id, wrapped = t.wrapped
      from ${unnest(sql, rewrapped)`account_id text, master_key_id text, wrapped bytea`}
     where k.account_id = t.account_id`;
  return rewrapped.length;
}
