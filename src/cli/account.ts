import { defaultApiVersion } from '../contract/versions/index.js';
import {
  type Account,
  awaitDecisions,
  findAccount,
  insertAccount,
  type Mode,
  newestAccounts,
  setAccountState,
} from '../db/accounts.js';
import { isOutage, mostListed, transaction } from '../db/client.js';
import { listBalances, postEntries } from '../db/ledger.js';
import { listActions, recordCommand } from '../db/operatorActions.js';
import type { AccountState } from '../domain/accountState.js';
import { fundEntry } from '../domain/ledger.js';
import { writtenSum } from '../domain/money.js';
import { currencyOf, sumOf } from './amounts.js';
import { addKey, showKey } from './keys.js';
import { printJson, printRows, wrapped } from './table.js';
import {
  type Call,
  existing,
  Refused,
  requiredFlag,
  requiredId,
  signatureOf,
  UsageError,
} from './usage.js';

/** Opens an account. Customers apply for accounts and operators open them; the API cannot. */
export async function openAccount(call: Call): Promise<void> {
  const { database, flags } = call;
  const options = { name: requiredFlag(flags, 'name'), mode: modeOf(flags['mode'] ?? 'test') };
  const signature = signatureOf(call);
  const { account, key, row } = await transaction(database, async (sql) => {
    const opened = await insertAccount(sql, { ...options, apiVersion: defaultApiVersion });
    await recordCommand(sql, signature, opened.id, { kind: 'account open', ...options });
    return { account: opened, ...(await addKey(sql, opened, {})) };
  });
  console.log(`Account  ${account.id} (${account.mode}, API version ${account.apiVersion})`);
  showKey(key, row);
}

/** Lists accounts, newest first. */
export async function listAccounts(call: Call): Promise<void> {
  const rows = await newestAccounts(call.database);
  printRows({ ...call, most: mostListed }, rows, 'There are no accounts.', lineOf);
}

/** Shows an account with its balances and the operator commands on it. */
export async function showAccount(call: Call): Promise<void> {
  const { database } = call;
  const id = requiredId('account', call);
  const account = existing('account', id, await findAccount(database, id));
  const [balances, actions] = await Promise.all([
    listBalances(database, id),
    listActions(database, id),
  ]);
  if (call.isJson) return printJson({ ...account, balances, actions });
  console.log(lineOf(account));
  console.log(`  API version ${account.apiVersion}, opened ${account.createdAt.toISOString()}`);
  for (const { currency, availableMinor, heldMinor } of balances) {
    const held = writtenSum(heldMinor, currency);
    console.log(`  ${writtenSum(availableMinor, currency)} available, ${held} held`);
  }
  for (const { createdAt, operator, command, reason } of actions) {
    const line = `${createdAt.toISOString()}  ${operator}: ${command.kind}. ${reason}`;
    console.log(wrapped(line, '  ', '    '));
  }
}

const lineOf = ({ id, mode, state, name }: Account) =>
  `${id}  ${mode}  ${state.padEnd(6)}  ${name}`;

/** Credits a test account. `--amount` is in major units, such as 1000.00. */
export async function fundAccount(call: Call): Promise<void> {
  const { database, flags } = call;
  const accountId = requiredFlag(flags, 'account');
  const currency = currencyOf(flags);
  const { amount } = flags;
  const amountMinor = sumOf(flags, 'amount', currency);
  const signature = signatureOf(call);
  const account = existing('account', accountId, await findAccount(database, accountId));
  if (account.mode !== 'test') throw new Refused('Only test accounts can be funded this way.');
  const entry = fundEntry(currency, amountMinor);
  await transaction(database, async (sql) => {
    await recordCommand(sql, signature, accountId, { kind: 'account fund', currency, amount });
    await postEntries(sql, [{ entry, mode: account.mode, accountId, payoutId: null }]);
  });
  for (const balance of await listBalances(database, accountId))
    console.log(writtenSum(balance.availableMinor, balance.currency));
}

/** Freezes, opens or closes an account. Closing is refused while it has open payouts or money. */
export async function changeState(call: Call, state: AccountState): Promise<void> {
  const id = requiredId('account', call);
  const signature = signatureOf(call);
  existing('account', id, await findAccount(call.database, id));
  await transaction(call.database, async (sql) => {
    await setAccountState(sql, id, state);
    await recordCommand(sql, signature, id, { kind: `account ${state}` });
  });
  console.log(`${id} is ${state}.`);
  if (state === 'frozen') await untilDecided(call, id);
}

/**
 * Waits until the decisions have ended that may not have seen a change of the account. Call it only after
 * the commit: waiting inside the transaction could deadlock with those decisions.
 */
export async function untilDecided({ database }: Call, accountId: string): Promise<void> {
  try {
    await awaitDecisions(database, accountId);
  } catch (error) {
    if (!isOutage(error)) throw error;
    console.error(
      'The change is in effect, but decisions already in progress may still accept payouts.',
    );
  }
}

function modeOf(text: string): Mode {
  if (text === 'test' || text === 'live') return text;
  throw new UsageError('--mode expects test or live.');
}
