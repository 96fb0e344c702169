import { createApiKey, hashOfKey } from '../api/apiKey.js';
import { defaultApiVersion } from '../contract/versions/index.js';
import {
  findAccount,
  insertAccount,
  insertApiKey,
  listApiKeys,
  type Mode,
  revokeApiKey,
} from '../db/accounts.js';
import { type Database, transaction } from '../db/client.js';
import { listBalances, postEntries } from '../db/ledger.js';
import { fundEntry } from '../domain/ledger.js';
import { formatMinor, isCurrency, parseMajor } from '../domain/money.js';
import { UsageError } from './usage.js';

/** Opens an account: accounts are opened by application, not through the API. */
export async function openAccount(
  database: Database,
  options: { readonly name: string; readonly mode: Mode },
): Promise<void> {
  const account = await insertAccount(database, { ...options, apiVersion: defaultApiVersion });
  console.log(`Account  ${account.id} (${account.mode}, API version ${account.apiVersion})`);
  await createKey(database, account.id);
}

/** Puts money on a test account. `amount` is in major units, such as 1000.00. */
export async function fundAccount(
  database: Database,
  options: { readonly accountId: string; readonly currency: string; readonly amount: string },
): Promise<void> {
  const { accountId, currency, amount } = options;
  const account = await existingAccount(database, accountId);
  if (account.mode !== 'test') throw new UsageError('Only test accounts are funded by command.');
  if (!isCurrency(currency)) throw new UsageError('--currency expects an ISO 4217 code.');
  const amountMinor = parseMajor(amount, currency);
  if (amountMinor === undefined || amountMinor <= 0n) {
    throw new UsageError(`--amount expects a sum of ${currency} above zero, such as 1000.`);
  }
  const entry = fundEntry(currency, amountMinor);
  await transaction(database, (sql) =>
    postEntries(sql, [{ entry, mode: account.mode, accountId, payoutId: null }]),
  );
  for (const balance of await listBalances(database, accountId)) {
    console.log(`${balance.currency}  ${formatMinor(balance.availableMinor, balance.currency)}`);
  }
}

/** Makes a key and shows it, once. */
export async function createKey(database: Database, accountId: string): Promise<void> {
  const { mode } = await existingAccount(database, accountId);
  const key = createApiKey(mode);
  const row = await insertApiKey(database, {
    accountId,
    keyHash: hashOfKey(key),
    lastFour: key.slice(-4),
  });
  console.log(`API key  ${key}\n         ${row.id}; it is shown this once`);
}

export async function listKeys(database: Database, accountId: string): Promise<void> {
  await existingAccount(database, accountId);
  for (const key of await listApiKeys(database, accountId)) {
    const state = key.revokedAt === null ? 'active' : `revoked ${key.revokedAt.toISOString()}`;
    console.log(`${key.id}  …${key.lastFour}  made ${key.createdAt.toISOString()}  ${state}`);
  }
}

/** Revokes a key: the next request with it is refused. */
export async function revokeKey(database: Database, accountId: string, id: string): Promise<void> {
  await existingAccount(database, accountId);
  if (!(await revokeApiKey(database, accountId, id))) {
    throw new UsageError(`--revoke expects an active key of ${accountId}; ${id} is none.`);
  }
  console.log(`${id} is revoked.`);
}

async function existingAccount(database: Database, accountId: string) {
  const account = await findAccount(database, accountId);
  if (account === undefined) throw new UsageError(`There is no account ${accountId}.`);
  return account;
}
