import type { OperatorRole, Signature } from '../domain/operator.js';
import { createKey, hashOfKey, isWellFormedKey } from './apiKeys.js';
import { exactlyOne, type Sql } from './client.js';
import { newId } from './id.js';

/** An operator, whose name stays the same person's when the key is replaced or revoked. */
export type Operator = {
  readonly name: string;
  readonly role: OperatorRole;
  /** Of the key; or the identity at the company's provider of whoever signs in. */
  readonly lastFour: string | null;
  readonly identity: string | null;
  readonly createdAt: Date;
  readonly rolledAt: Date | null;
  readonly revokedAt: Date | null;
};

export function listOperators(sql: Sql): Promise<readonly Operator[]> {
  return sql<Operator[]>`
    select name, role, last_four, identity, created_at, rolled_at, revoked_at from operators order by name`;
}

export const isWellFormedOperatorKey = (text: string) => isWellFormedKey(text, /^cop_/);

/** The name of the operator whose key this is, as the database knows it; throws if no operator has it. */
export async function operatorOf(sql: Sql, operatorKey: string): Promise<string> {
  const [row] = await sql<{ name: string }[]>`select operator_of(${operatorKey}, 'view') as name`;
  return exactlyOne(row).name;
}

/** Adds an operator, or replaces the key of one, also of one that was revoked; the new key. */
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

/** Adds an operator who signs in, or has one sign in from now on instead of using a key. */
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

/** Begins a session of the operator with an identity; throws if there is none. The key is not stored. */
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
 * How many other operators than this one are admins by a key, which needs no provider that answers. It
 * stays so until the transaction ends.
 */
export async function countOtherAdmins(sql: Sql, name: string): Promise<number> {
  await sql`lock table operators in share row exclusive mode`;
  const others = await sql`
    select from operators
     where role = 'admin' and key_hash is not null and revoked_at is null and name <> ${name}`;
  return others.count;
}

/** Makes an admin, or gives one another key, by the right of the owner of the database; the key. */
export async function enrollAdmin(sql: Sql, name: string, reason: string): Promise<string> {
  const key = createKey('cop_');
  await sql`
    select enroll_operator(${newId('operatorAction')}, ${name}, 'admin', ${hashOfKey(key)},
      ${key.slice(-4)}, ${reason}, 'operators first', ${name})`;
  return key;
}

/** Revokes the key of an operator at once: what they have proposed is not executed any more either. */
export async function revokeOperator(
  sql: Sql,
  { operatorKey, reason }: Signature,
  name: string,
): Promise<void> {
  await sql`select revoke_operator(${operatorKey}, ${newId('operatorAction')}, ${name}, ${reason})`;
}
