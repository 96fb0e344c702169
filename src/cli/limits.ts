import { findAccount } from '../db/accounts.js';
import { transaction } from '../db/client.js';
import { findFunds, setLimits } from '../db/ledger.js';
import { recordCommand } from '../db/operatorActions.js';
import { endPayeeDelay, setPayeeDelay } from '../db/payeeDelays.js';
import { writtenMinor } from '../domain/money.js';
import { writtenHours } from '../domain/sendingLimits.js';
import { untilDecided } from './account.js';
import { countOf, currencyOf, sumOf } from './amounts.js';
import { printJson } from './table.js';
import { type Call, existing, requiredFlag, requiredId, signatureOf, UsageError } from './usage.js';

/** Sets an account's limits for a currency or a corridor. Limits without a flag stay as they are. */
export async function changeLimits(call: Call): Promise<void> {
  const { database, flags } = call;
  const accountId = requiredId('account', call);
  const signature = signatureOf(call);
  const currency = currencyOf(flags);
  const { destination, payout, day, month } = flags;
  if (destination !== undefined) currencyOf(flags, 'destination');
  if ((payout ?? day ?? month) === undefined) {
    throw new UsageError('--payout, --day or --month is missing.');
  }
  existing('account', accountId, await findAccount(database, accountId));
  const limits = {
    destination: destination ?? null,
    payoutMinor: limitOf(flags, 'payout', currency),
    dayMinor: limitOf(flags, 'day', currency),
    monthMinor: limitOf(flags, 'month', currency),
  };
  await transaction(database, async (sql) => {
    await setLimits(sql, { accountId, currency, ...limits });
    const command = { kind: 'limits set', currency, destination, payout, day, month };
    await recordCommand(sql, signature, accountId, command);
  });
  await showLimits(call);
}

/** Shows each limit of an account and how much of it is used. */
export async function showLimits(call: Call): Promise<void> {
  const id = requiredId('account', call);
  existing('account', id, await findAccount(call.database, id));
  const { limitUses, payeeDelays: newPayee } = await findFunds(call.database, id);
  if (call.isJson) return printJson({ limits: Object.fromEntries(limitUses), newPayee });
  if (limitUses.size + newPayee.length === 0) console.log('No limits.');
  for (const [currency, limits] of limitUses) {
    for (const { period, destination, limitMinor, usedMinor, resetsAt } of limits) {
      const pair = destination === null ? currency : `${currency} to ${destination}`;
      const [limit, used] = [limitMinor, usedMinor].map((minor) => writtenMinor(minor, currency));
      const use = resetsAt === null ? '' : `, ${used} used, resets at ${resetsAt.toISOString()}`;
      console.log(`${pair}  ${limit} a ${period}${use}`);
    }
  }
  for (const { currency, aboveMinor, hours } of newPayee) {
    const above = writtenMinor(aboveMinor, currency);
    const age = `added or updated less than ${writtenHours(hours)} ago`;
    console.log(`${currency}  ${above} a payout to a beneficiary ${age}`);
  }
}

/** Sets the sum above which payouts are held until the beneficiary's details are some hours old. */
export async function changePayeeDelay(call: Call): Promise<void> {
  const { database, flags } = call;
  const accountId = requiredId('account', call);
  const signature = signatureOf(call);
  const currency = currencyOf(flags);
  const above = requiredFlag(flags, 'above');
  const aboveMinor = above === 'none' ? 0n : sumOf(flags, 'above', currency, { least: 0n, or });
  // At most 30 days: an operator who wants a longer delay should close the account instead.
  const hours = countOf('hours', flags['hours'] ?? '24', 'a number of hours', [1, 720]);
  existing('account', accountId, await findAccount(database, accountId));
  await transaction(database, async (sql) => {
    if (above === 'none') await endPayeeDelay(sql, accountId, currency);
    else await setPayeeDelay(sql, accountId, { currency, aboveMinor, hours });
    const command = { kind: 'limits new-payee', currency, above, hours: `${hours}` };
    await recordCommand(sql, signature, accountId, command);
  });
  await untilDecided(call, accountId);
  await showLimits(call);
}

const or = 'none, or ';

/** Parses a limit: null leaves it as it is, zero removes it. */
function limitOf(flags: Call['flags'], name: string, currency: string): bigint | null {
  if (flags[name] === undefined) return null;
  return flags[name] === 'none' ? 0n : sumOf(flags, name, currency, { or });
}
