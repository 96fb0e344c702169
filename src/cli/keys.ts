import { isNetwork } from '../config.js';
import { type Account, findAccount } from '../db/accounts.js';
import {
  type ApiKey,
  countActiveKeys,
  createApiKey,
  expireApiKey,
  findApiKey,
  hashOfKey,
  insertApiKey,
  listApiKeys,
  type NewApiKey,
  revokeApiKey,
} from '../db/apiKeys.js';
import { type Sql, transaction } from '../db/client.js';
import { recordCommand } from '../db/operatorActions.js';
import { isScope, type Scope, scopes } from '../domain/scope.js';
import { countOf } from './amounts.js';
import { printRows } from './table.js';
import {
  type Call,
  existing,
  futureTime,
  Refused,
  requiredFlag,
  requiredId,
  signatureOf,
  UsageError,
} from './usage.js';

/** Maximum number of active keys with the same name: the outgoing one and its replacement. */
const activeKeysOfName = 2;

/** Maximum overlap of a rolled key, 30 days: anyone who needs longer has not started to switch. */
const longestOverlapHours = 720;

/** Creates a key and shows it once. */
export async function createKey(call: Call): Promise<void> {
  const { database, flags } = call;
  const accountId = requiredFlag(flags, 'account');
  const signature = signatureOf(call);
  const account = existing('account', accountId, await findAccount(database, accountId));
  const { name, scopes: granted, allow, expires } = flags;
  const wanted = {
    ...(name === undefined ? {} : { name: nameOf(name) }),
    ...(granted === undefined ? {} : { scopes: scopesOf(granted) }),
    ...(allow === undefined ? {} : { allowed: networksOf(allow) }),
    ...(expires === undefined ? {} : { expiresAt: futureTime(flags, 'expires') }),
  };
  const { key, row } = await transaction(database, async (sql) => {
    const added = await addKey(sql, account, wanted);
    await recordCommand(sql, signature, added.row.id, { kind: 'keys create', ...wanted });
    return added;
  });
  showKey(key, row);
}

/**
 * Creates a key that replaces another, with the same name, scopes and addresses. The old key stays valid
 * for `overlap` hours, so that all callers can switch in that time.
 */
export async function rollKey(call: Call): Promise<void> {
  const { database, flags } = call;
  const id = requiredId('key', call);
  const signature = signatureOf(call);
  const { overlap = '24', expires } = flags;
  const overlapHours = countOf('overlap', overlap, 'hours', [0, longestOverlapHours]);
  const { key, row, old } = await transaction(database, async (sql) => {
    const rolled = existing('key', id, await findApiKey(sql, id));
    if (!rolled.isActive) throw new Refused(`${id} is not active; create a new key.`);
    if (rolled.expiresAt !== null && expires === undefined) {
      throw new UsageError(`${id} has an expiry time: set that of the new key with --expires.`);
    }
    const { accountId, name, scopes: granted, allowed } = rolled;
    const account = existing('account', accountId, await findAccount(sql, accountId));
    const expiresAt = expires === undefined ? null : futureTime(flags, 'expires');
    const added = await addKey(sql, account, { name, scopes: granted, allowed, expiresAt });
    const command = { kind: 'keys roll', overlapHours, replacedBy: added.row.id };
    await recordCommand(sql, signature, id, command);
    return { ...added, old: await expireApiKey(sql, id, overlapHours) };
  });
  showKey(key, row);
  console.log(`${old.id} works until ${old.expiresAt?.toISOString()}.`);
}

/** Revokes a key, effective from the next request. */
export async function revokeKey(call: Call): Promise<void> {
  const id = requiredId('key', call);
  const signature = signatureOf(call);
  await transaction(call.database, async (sql) => {
    if (!(await revokeApiKey(sql, id)))
      throw new Refused(`${id} is not a key, or is already revoked.`);
    await recordCommand(sql, signature, id, { kind: 'keys revoke' });
  });
  console.log(`${id} is revoked.`);
}

/** Lists the keys of an account. Only hashes are stored, so the keys themselves cannot be shown. */
export async function listKeys(call: Call): Promise<void> {
  const { database, flags } = call;
  const accountId = requiredFlag(flags, 'account');
  existing('account', accountId, await findAccount(database, accountId));
  printRows(call, await listApiKeys(database, accountId), 'The account has no keys.', (key) => {
    const used = key.lastUsedAt === null ? 'never used' : `used ${key.lastUsedAt.toISOString()}`;
    const made = `created ${key.createdAt.toISOString()}`;
    const from = key.allowed === null ? '' : ` from ${key.allowed.join(',')}`;
    const what = `${key.name}  ${key.scopes.join(',')}${from}`;
    return `${key.id}  …${key.lastFour}  ${stateOf(key)}\n  ${what}\n  ${made}, ${used}`;
  });
}

function stateOf({ revokedAt, expiresAt, isActive }: ApiKey): string {
  if (revokedAt !== null) return `revoked ${revokedAt.toISOString()}`;
  if (expiresAt === null) return 'active';
  return `${isActive ? 'active until' : 'expired'} ${expiresAt.toISOString()}`;
}

/** Adds a key to an account. Only the return value contains the key itself; the database has its hash. */
export async function addKey(
  sql: Sql,
  account: Account,
  wanted: Pick<NewApiKey, 'name' | 'scopes' | 'allowed' | 'expiresAt'>,
): Promise<{ readonly key: string; readonly row: ApiKey }> {
  const key = createApiKey(account.mode);
  const accountId = account.id;
  const keyHash = hashOfKey(key);
  const row = await insertApiKey(sql, { ...wanted, accountId, keyHash, lastFour: key.slice(-4) });
  if ((await countActiveKeys(sql, accountId, row.name)) > activeKeysOfName) {
    throw new Refused(
      `${accountId} has ${activeKeysOfName} active keys named ${row.name}: revoke one first. (keys create can use another --name.)`,
    );
  }
  return { key, row };
}

/** Prints a new key. */
export function showKey(key: string, { id, name, scopes: granted, expiresAt }: ApiKey): void {
  const end = expiresAt === null ? '' : `, until ${expiresAt.toISOString()}`;
  console.log(`API key  ${key}`);
  console.log(`         ${id} (${name}: ${granted.join(', ')}${end}); it is shown only once`);
}

function nameOf(text: string): string {
  if (/^[A-Za-z0-9._-]{1,64}$/.test(text)) return text;
  throw new UsageError('--name expects 1 to 64 letters, digits, dots, dashes and underscores.');
}

function scopesOf(text: string): readonly Scope[] {
  const names = [...new Set(text.split(','))];
  const known = names.filter(isScope);
  if (known.length === names.length) return known;
  throw new UsageError(`--scopes expects some of ${scopes.join(',')}, separated by commas.`);
}

function networksOf(text: string): readonly string[] {
  const networks = [...new Set(text.split(','))];
  if (networks.every(isNetwork)) return networks;
  throw new UsageError('--allow expects addresses and subnets, such as 192.0.2.7,10.0.0.0/8.');
}
