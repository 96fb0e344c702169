import { hasSqlState, transaction } from '../db/client.js';
import {
  countOtherAdmins,
  enrollAdmin,
  giveOperatorIdentity,
  giveOperatorKey,
  listOperators,
  revokeOperator,
} from '../db/operators.js';
import { type OperatorRole, operatorRoles } from '../domain/operator.js';
import { printRows } from './table.js';
import { type Call, type Flags, Refused, requiredFlag, signatureOf, UsageError } from './usage.js';

/** Lists all operators with their roles and the dates of their keys or identities. */
export async function showOperators(call: Call): Promise<void> {
  const none = 'There are no operators: see corridor operators first.';
  printRows(call, await listOperators(call.database), none, (operator) => {
    const { name, role, lastFour, identity, createdAt, rolledAt, revokedAt } = operator;
    const proof = identity ? `signs in as ${identity} since` : `key …${lastFour} issued`;
    const made = `${proof} ${(rolledAt ?? createdAt).toISOString()}`;
    const end = revokedAt === null ? '' : `  revoked ${revokedAt.toISOString()}`;
    return `${name}  ${role}  ${made}${end}`;
  });
}

/**
 * Enrols one of the first two admins, who approve each other's commands, or replaces a lost key. Needs the
 * database owner's login.
 */
export async function addFirstOperator(call: Call): Promise<void> {
  const name = nameOf(call);
  const { reason } = signatureOf(call);
  const key = await transaction(call.database, async (sql) => {
    if ((await countOtherAdmins(sql, name)) < 2) return enrollAdmin(sql, name, reason);
    throw new Refused('Two admins already have keys: they can add other operators.');
  }).catch((error: unknown) => {
    if (!hasSqlState(error, '42501')) throw error;
    throw new UsageError('DATABASE_URL expects the login of the owner, as for corridor migrate.');
  });
  showKey(name, key);
}

/**
 * Adds an operator, or replaces an operator's key: your own or, as an admin, anyone's. The old key stops working. An
 * operator who does not sign in gets a key, which is shown once.
 */
export async function giveProof(call: Call, verb: 'add' | 'roll'): Promise<void> {
  const { database, flags } = call;
  const role = roleOf(verb === 'add' ? { role: requiredFlag(flags, 'role') } : flags);
  const name = nameOf(call);
  const signature = signatureOf(call);
  if (flags['identity'] === undefined) {
    showKey(name, await giveOperatorKey(database, signature, verb, { name, role }));
    return;
  }
  const identity = identityOf(flags['identity']);
  await giveOperatorIdentity(database, signature, verb, { name, role, identity });
  console.log(`${name} now signs in as ${identity}, with corridor sign-in.`);
}

/** Revokes an operator at once. */
export async function endOperator(call: Call): Promise<void> {
  const name = nameOf(call);
  await revokeOperator(call.database, signatureOf(call), name);
  console.log(`${name} is revoked.`);
}

function showKey(name: string, key: string): void {
  console.log(`Operator key  ${key}`);
  console.log(`              of ${name}; it is shown only once. Set CORRIDOR_OPERATOR_KEY to it.`);
}

/** Lower-case ASCII only, so that no name can look like another. */
function nameOf({ id }: Call): string {
  if (/^[a-z0-9][a-z0-9._@+-]{0,63}$/.test(id)) return id;
  throw new UsageError('NAME expects 1 to 64 of a-z, 0-9 and . _ @ + -, such as grace.hopper.');
}

/** The identity exactly as the provider returns it: case matters, as a `sub` may contain capitals. */
function identityOf(text: string): string {
  if (/^[\x21-\x7e]{1,255}$/.test(text)) return text;
  throw new UsageError('--identity expects up to 255 ASCII characters, without spaces.');
}

function roleOf({ role }: Flags): OperatorRole | null {
  const known = operatorRoles.find((each) => each === role);
  if (known !== undefined || role === undefined) return known ?? null;
  throw new UsageError(`--role expects one of ${operatorRoles.join(', ')}.`);
}
