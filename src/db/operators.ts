import type { OperatorRole, Signature } from '../domain/operator.js';
import { createKey, hashOfKey, isWellFormedKey } from './apiKeys.js';
import { exactlyOne, type Sql } from './client.js';
import { newId } from './id.js';

/** An operator. The name refers to the same person even after the key is replaced or revoked. */
export type Operator = {
  readonly name: string;
  readonly role: OperatorRole;
  /** End of the key. Operators who sign in have an identity at the company's provider instead. */
  readonly lastFour: string | null;
  readonly identity: string | null;
  readonly createdAt: Date;
  readonly rolledAt: Date | null;
  readonly revokedAt: Date | null;
};

export const listOperators = (sql: Sql) => sql<Operator[]>`
  select name, role, last_four, identity, created_at, rolled_at, revoked_at from operators order by name`;

export const isWellFormedOperatorKey = (text: string) => isWellFormedKey(text, /^cop_/);

/** Returns the name of the operator with this key, looked up in the database; throws if there is none. */
export async function operatorOf(sql: Sql, operatorKey: string): Promise<string> {
  const [row] = await sql<{ name: string }[]>`select operator_of(${operatorKey}, 'view') as name`;
  return exactlyOne(row).name;
}

/** Adds an operator with a key, or replaces an operator's key, even a revoked one; returns the new key. */
export async function giveOperatorKey(
  sql: Sql,
  { operatorKey, reason }: Signature,
  verb: 'add' | 'roll',
  { name, role }: { readonly name: string; readonly role: OperatorRole | null },
): Promise<string> {
  const key = createKey('cop_');
  await sql`
    select give_operator_key(${operatorKey}, ${newId('operatorAction')}, ${verb}, ${name}, ${role},
      ${hashOfKey(key)}, ${key.slice(-4)}, ${reason})`;
  return key;
}

/** Adds an operator who signs in, or switches an operator from a key to signing in. */
export async function giveOperatorIdentity(
  sql: Sql,
  { operatorKey, reason }: Signature,
  verb: 'add' | 'roll',
  operator: Pick<Operator, 'name' | 'identity'> & { readonly role: OperatorRole | null },
): Promise<void> {
  const { name, role, identity } = operator;
  await sql`
    select give_operator_identity(${operatorKey}, ${newId('operatorAction')}, ${verb}, ${name}, ${role},
      ${identity}, ${reason})`;
}

export type OperatorSession = Pick<Operator, 'role'> & {
  readonly key: string;
  readonly operator: string;
  readonly endsAt: Date;
};

/** Begins a session of the operator with this identity; throws if there is none. The key is not stored. */
export async function beginSession(
  sql: Sql,
  identity: string,
  hours: number,
): Promise<OperatorSession> {
  const key = createKey('cop_');
  const [row] = await sql<Omit<OperatorSession, 'key'>[]>`
    select operator, role, ends_at
      from begin_operator_session(${newId('operatorAction')}, ${identity}, ${hashOfKey(key)}, ${hours})`;
  return { ...exactlyOne(row), key };
}

/**
 * Counts the other operators who are admins with a key, and can therefore act even if the identity provider
 * is down. Locks the table, so that the number cannot change until the transaction ends.
 */
export async function countOtherAdmins(sql: Sql, name: string): Promise<number> {
  await sql`lock table operators in share row exclusive mode`;
  const others = await sql`
    select from operators
     where role = 'admin' and key_hash is not null and revoked_at is null and name <> ${name}`;
  return others.count;
}

/** Adds an admin, or replaces an admin's key, and returns the key. Only the database owner may do this. */
export async function enrollAdmin(sql: Sql, name: string, reason: string): Promise<string> {
  const key = createKey('cop_');
  await sql`
    select enroll_operator(${newId('operatorAction')}, ${name}, 'admin', ${hashOfKey(key)},
      ${key.slice(-4)}, ${reason}, 'operators first', ${name})`;
  return key;
}

/** Revokes an operator at once. Their open proposals are no longer executed either. */
export const revokeOperator = async (sql: Sql, { operatorKey, reason }: Signature, name: string) =>
  sql`select revoke_operator(${operatorKey}, ${newId('operatorAction')}, ${name}, ${reason})`;
