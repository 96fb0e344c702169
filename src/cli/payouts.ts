import { entriesOf } from '../db/ledger.js';
import { insertRequest, listActions } from '../db/operatorActions.js';
import { findPayoutById, listParked, type PayoutRow } from '../db/payouts.js';
import { ledgerAccounts } from '../domain/ledger.js';
import { formatMinor, formatSum, isCurrency, parseMajor } from '../domain/money.js';
import {
  type Correction,
  faultOf,
  type OperatorCommand,
  type PostingText,
} from '../domain/operator.js';
import { attentionReasons, statusHistory } from '../domain/payout.js';
import { askPayout } from '../temporal/workflowCalls.js';
import { operateUpdate } from '../workflows/messages.js';
import { type Call, existing, requiredFlag, requiredId, signatureOf, UsageError } from './usage.js';

/** Every payout that needs a person, longest waiting first. */
export async function listAttention({ database }: Call): Promise<void> {
  const parked = await listParked(database);
  if (parked.length === 0) console.log('No payout needs a person.');
  for (const row of parked) {
    const since = row.attentionAt?.toISOString();
    console.log(`${row.id}  ${row.status}  ${row.attentionReason}  since ${since}`);
    console.log(`  ${amounts(row)}; ${row.attentionDetail}`);
  }
}

/** One payout with everything that happened to it and who did what. */
export async function showPayout(call: Call): Promise<void> {
  const { database } = call;
  const id = requiredId('payout', call);
  const row = existing('payout', id, await findPayoutById(database, id));
  console.log(`${row.id}  ${row.status}  ${amounts(row)}`);
  for (const { at, status, reason } of statusHistory(row)) {
    console.log(`  ${at}  ${status}${reason === null ? '' : `  (${reason})`}`);
  }
  if (row.attentionReason !== null) {
    console.log(`Needs a person: ${row.attentionReason}. ${attentionReasons[row.attentionReason]}`);
    console.log(`  ${row.attentionDetail}`);
  }
  for (const { id: entry, kind, postings } of await entriesOf(database, id)) {
    console.log(`  entry ${entry}  ${kind}`);
    for (const { account, currency, amountMinor } of postings) {
      console.log(`    ${account}  ${formatSum(amountMinor, currency)}`);
    }
  }
  for (const action of await listActions(database, id)) {
    const { createdAt, operator, command, outcome, detail, reason } = action;
    const { kind, ...rest } = command;
    const what = `${kind} ${JSON.stringify(rest)}, ${outcome}. ${detail}`;
    console.log(`  ${createdAt.toISOString()}  ${operator}: ${what}`);
    console.log(`    ${action.id}, because: ${reason}`);
  }
}

/** A payout's workflow answers when the rail has; a look-up and a void take seconds. */
const actionLimitMs = 60_000;

/**
 * Stores an operator's command, and has the payout's workflow execute it by its id alone. True
 * when it was not refused.
 */
async function act(call: Call, commandOf: CommandMaker): Promise<boolean> {
  const { database, flags } = call;
  const id = requiredId('payout', call);
  return call.withTemporal(async (temporal) => {
    const row = existing('payout', id, await findPayoutById(database, id));
    const command = commandOf(flags, row);
    const fault = faultOf(command, new Date());
    if (fault !== undefined) throw new UsageError(fault);
    const action = await insertRequest(database, id, signatureOf(call), command);
    // Said first: who is interrupted now can look for it, and send it again.
    console.log(`Recorded as ${action}.`);
    const update = { name: operateUpdate.name, args: [action] };
    const { outcome, detail } = await askPayout(temporal, row, update, actionLimitMs);
    console.log(`${outcome}: ${detail}`);
    return outcome !== 'refused';
  });
}

type CommandMaker = (flags: Call['flags'], row: PayoutRow) => OperatorCommand;

/** The commands on a payout by their verbs, each made of its flags. */
const commandsOn: Readonly<Record<string, CommandMaker>> = {
  retry: () => ({ kind: 'retryNow' }),
  settle: (flags) => ({ kind: 'markSettled', evidence: requiredFlag(flags, 'evidence') }),
  fail: (flags) => {
    const isGiven = flags['statement-date'] !== undefined;
    const statementDate = isGiven ? requiredFlag(flags, 'statement-date') : null;
    return { kind: 'failAndRelease', statementDate };
  },
  extend: (flags) => ({ kind: 'extendDeadline', until: requiredFlag(flags, 'until') }),
  approve: (flags) => ({ kind: 'approve', proposal: requiredFlag(flags, 'proposal') }),
  cancel: () => ({ kind: 'cancel' }),
  'late-return': (flags, { destinationCurrency }) => {
    const currency = destinationCurrency ?? '';
    const amountMinor = minorOf(requiredFlag(flags, 'amount'), currency) ?? '0';
    if (BigInt(amountMinor) > 0n) return correct({ kind: 'lateReturn', amountMinor });
    throw new UsageError(`--amount expects a sum of ${currency} above zero, such as 10.`);
  },
  'clear-suspense': (flags) => {
    const charge = requiredFlag(flags, 'charge');
    if (charge === 'customer' || charge === 'house') {
      return correct({ kind: 'clearSuspense', charge });
    }
    throw new UsageError('--charge expects customer or house.');
  },
  reverse: (flags) => correct({ kind: 'reverse', entry: requiredFlag(flags, 'entry') }),
  correct: (flags) => {
    const postings = requiredFlag(flags, 'postings').split(',').map(postingOf);
    return correct({ kind: 'book', postings });
  },
};

/** `corridor payouts VERB` of each verb that changes a payout. */
export const payoutCommands = Object.fromEntries(
  Object.entries(commandsOn).map(([verb, commandOf]) => [
    `payouts ${verb}`,
    (call: Call) => act(call, commandOf),
  ]),
);

function correct(correction: Correction): OperatorCommand {
  return { kind: 'correct', correction };
}

function postingOf(text: string): PostingText {
  const [name = '', currency = '', amount = '', ...rest] = text.split(':');
  const account = ledgerAccounts.find((each) => each === name);
  const amountMinor = minorOf(amount, currency) ?? '0';
  if (account !== undefined && amountMinor !== '0' && rest.length === 0) {
    return { account, currency, amountMinor };
  }
  throw new UsageError(
    `--postings expects account:CURRENCY:amount, separated by commas, not "${text}"; the accounts ` +
      `are ${ledgerAccounts.join(', ')}.`,
  );
}

/** Minor units as text, which JSON can hold; undefined where it is no amount of the currency. */
function minorOf(amount: string, currency: string): string | undefined {
  return isCurrency(currency) ? parseMajor(amount, currency)?.toString() : undefined;
}

function amounts(row: PayoutRow): string {
  if (row.sourceMinor === null) return 'never accepted';
  const { sourceMinor, sourceCurrency, receiveMinor, destinationCurrency } = row;
  const source = `${formatMinor(sourceMinor, sourceCurrency)} ${sourceCurrency}`;
  return `${source} → ${formatMinor(receiveMinor, destinationCurrency)} ${destinationCurrency}`;
}
