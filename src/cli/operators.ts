import { hasSqlState, transaction } from '../db/client.js';
import {
  countOtherAdmins,
  enrollAdmin,
  giveOperatorKey,
  listOperators,
  revokeOperator,
} from '../db/operators.js';
import { type OperatorRole, operatorRoles } from '../domain/operator.js';
import { printRows } from './table.js';
import { type Call, type Flags, reasonOf, requiredFlag, signatureOf, UsageError } from './usage.js';

/** Every operator, with the role and how old the key is. */
export async function showOperators(call: Call): Promise<void> {
  const none = 'There are no operators: see corridor operators first.';
  printRows(call, await listOperators(call.database), none, (operator) => {
    const { name, role, lastFour, createdAt, rolledAt, revokedAt } = operator;
    const made = `key …${lastFour} of ${(rolledAt ?? createdAt).toISOString()}`;
    const end = revokedAt === null ? '' : `  revoked ${revokedAt.toISOString()}`;
    return `${name}  ${role}  ${made}${end}`;
  });
}

/** One of the first two admins, who approve for each other, or a lost key: by the owner of the database. */
export async function addFirstOperator(call: Call): Promise<void> {
  const name = nameOf(call);
  const reason = reasonOf(call.flags);
  const key = await transaction(call.database, async (sql) => {
    if ((await countOtherAdmins(sql, name)) < 2) return enrollAdmin(sql, name, reason);
    throw new UsageError('There are two admins already, who add other operators.');
  }).catch((error: unknown) => {
    if (!hasSqlState(error, '42501')) throw error;
    throw new UsageError('DATABASE_URL expects the login of the owner, as corridor migrate does.');
  });
  showKey(name, key);
}

/** Adds an operator and shows the key, once. */
export async function addOperator(call: Call): Promise<void> {
  const name = nameOf(call);
  const role = roleOf({ role: requiredFlag(call.flags, 'role') });
  showKey(name, await giveOperatorKey(call.database, signatureOf(call), 'add', { name, role }));
}

/** Replaces an operator's key, which stops working: your own or, as an admin, anyone's. */
export async function rollOperator(call: Call): Promise<void> {
  const name = nameOf(call);
  const role = roleOf(call.flags);
  showKey(name, await giveOperatorKey(call.database, signatureOf(call), 'roll', { name, role }));
}

/** Ends an operator's key at once. */
export async function endOperator(call: Call): Promise<void> {
  const name = nameOf(call);
  await revokeOperator(call.database, signatureOf(call), name);
  console.log(`${name} is revoked.`);
}

function showKey(name: string, key: string): void {
  console.log(`Operator key  ${key}`);
  console.log(`              of ${name}; it is not shown again. Set CORRIDOR_OPERATOR_KEY to it.`);
}

/** Small letters of ASCII: no name looks like another person's. */
function nameOf({ id }: Call): string {
  if (/^[a-z0-9][a-z0-9._@+-]{0,63}$/.test(id)) return id;
  throw new UsageError('NAME expects 1 to 64 of a-z, 0-9 and . _ @ + -, such as grace.hopper.');
}

function roleOf({ role }: Flags): OperatorRole | null {
  const known = operatorRoles.find((each) => each === role);
  if (known !== undefined || role === undefined) return known ?? null;
  throw new UsageError(`--role expects one of ${operatorRoles.join(', ')}.`);
}
