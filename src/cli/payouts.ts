import { findAccount } from '../db/accounts.js';
import { mostListed } from '../db/client.js';
import { entriesOf } from '../db/ledger.js';
import { insertRequest } from '../db/operatorActions.js';
import { oldestPayouts, stuckPayouts } from '../db/operatorLists.js';
import { findPayoutById, type PayoutRow, readPayouts } from '../db/payouts.js';
import { orderText } from '../domain/commandRules.js';
import { ledgerAccounts } from '../domain/ledger.js';
import { isCurrency, parseMajor } from '../domain/money.js';
import {
  type Correction,
  faultOf,
  type OperatorCommand,
  type OperatorResult,
  type PostingText,
} from '../domain/operator.js';
import { isFinal, payoutStatuses } from '../domain/payout.js';
import { operateUpdate } from '../workflows/messages.js';
import { sumOf } from './amounts.js';
import { approvalOf, executableProposals, nextLines, offersNow } from './showPayout.js';
import { plain, printRows, wrapped } from './table.js';
import { type Call, existing, requiredFlag, requiredId, signatureOf, UsageError } from './usage.js';

/**
 * Lists payouts of all accounts, longest waiting first: those that filters select, or else the stuck ones, live
 * before test, and parked before unanswered.
 */
export async function listPayouts(call: Call): Promise<void> {
  const { database, flags, isStuck } = call;
  const { status: named, account } = flags;
  const status = payoutStatuses.find((each) => each === named);
  if (named !== undefined && status === undefined) {
    throw new UsageError(`--status expects one of ${payoutStatuses.join(', ')}.`);
  }
  if (account !== undefined) existing('account', account, await findAccount(database, account));
  const filter = { account, status, olderThanMs: ageOf(flags) };
  const isFiltered = Object.values(filter).some((value) => value !== undefined);
  const statuses =
    status === undefined ? payoutStatuses.filter((each) => !isFinal(each)) : [status];
  const rows =
    isStuck || !isFiltered
      ? await stuckPayouts(database, filter)
      : await oldestPayouts(database, statuses, filter);
  const proposals = await executableProposals(database, rows);
  const proposers = new Map(proposals.map(({ subjectId, operator }) => [subjectId, operator]));
  const none = isFiltered ? 'No payout matches.' : 'No payout is stuck.';
  const most = mostListed;
  printRows({ ...call, most }, rows, none, (row) => lineOf(row, proposers.get(row.id)));
}

const unitsMs = { m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

function ageOf({ 'older-than': text }: Call['flags']): number | undefined {
  if (text === undefined) return undefined;
  const [, count = '', letter] = /^(\d{1,4})([mhd])$/.exec(text) ?? [];
  if (letter !== 'm' && letter !== 'h' && letter !== 'd') {
    throw new UsageError('--older-than expects minutes, hours or days, such as 30m, 2h or 3d.');
  }
  return Number.parseInt(count, 10) * unitsMs[letter];
}

function lineOf(row: PayoutRow, proposer: string | undefined): string {
  const { id, status, accountId, attentionReason, attentionAt, submitStartedAt } = row;
  const isInDoubt = status === 'processing' && submitStartedAt !== null;
  const why = attentionReason ?? (isInDoubt ? 'no answer from the bank' : '');
  const since = attentionAt ?? (isInDoubt ? submitStartedAt : row.requestedAt);
  return [
    `${id}  ${status.padEnd(10)}  ${since.toISOString().slice(0, 16)}Z  ${why}`.trimEnd(),
    wrapped(`${orderText(row)}, ${accountId}`, '  '),
    ...(row.attentionDetail === null ? [] : [wrapped(row.attentionDetail, '  ')]),
    ...(proposer === undefined ? [] : [`  A proposal by ${proposer} waits for approval.`]),
  ].join('\n');
}

/** Timeout of a command: the payout's workflow waits for the rail, and a look-up and a void take seconds. */
const actionLimitMs = 60_000;

/**
 * Stores an operator's command and passes only its ID to the payout's workflow, which executes it. False
 * if the command was refused.
 */
async function act(call: Call, verb: string, commandOf: CommandMaker): Promise<boolean> {
  const { database, flags } = call;
  const id = requiredId('payout', call);
  return call.withTemporal(async (temporal) => {
    // Loaded here, because a list needs no client of Temporal.
    const { runUpdate } = await import('../temporal/workflowCalls.js');
    const row = existing('payout', id, await findPayoutById(database, id));
    const command = commandOf(flags, row);
    const fault = faultOf(command, new Date());
    if (fault !== undefined) throw new UsageError(fault);
    const action = await insertRequest(database, id, signatureOf(call), command);
    // Printed before the call, so that an interrupted operator can look the command up and repeat it.
    console.log(`Audit line ${action}.`);
    const update = { name: operateUpdate.name, args: [action] };
    const { outcome, detail } = await runUpdate(temporal, row, update, actionLimitMs);
    console.log(plain(`${outcome}: ${detail}`));
    await printNextSteps(database, { id, verb, action, outcome });
    return outcome !== 'refused';
  });
}

type Answered = Record<'id' | 'verb' | 'action', string> & Pick<OperatorResult, 'outcome'>;

/** Prints what would be accepted instead of a refused command, or how a proposal is approved. */
async function printNextSteps(
  database: Call['database'],
  { id, verb, action, outcome }: Answered,
): Promise<void> {
  if (outcome === 'done') return;
  const [found] = await readPayouts(database, null, [id]);
  const row = existing('payout', id, found);
  const offers =
    outcome === 'proposed'
      ? [approvalOf(id, action, 'you')]
      : offersNow(row, await entriesOf(database, id));
  // Omits the command that was just refused: it would be refused again.
  const refused = `corridor payouts ${verb} ${id} --reason`;
  const others = offers.filter(({ command }) => !command.startsWith(refused));
  for (const line of nextLines(others)) console.log(line);
}

type CommandMaker = (flags: Call['flags'], row: PayoutRow) => OperatorCommand;

/** Commands on a payout by verb, each built from the command line's flags. */
const commandsOn: Readonly<Record<string, CommandMaker>> = {
  retry: () => ({ kind: 'retryNow' }),
  settle: (flags) => ({ kind: 'markSettled', evidence: requiredFlag(flags, 'evidence') }),
  fail: (flags) => ({ kind: 'failAndRelease', statementDate: flags['statement-date'] ?? null }),
  extend: (flags) => ({ kind: 'extendDeadline', until: requiredFlag(flags, 'until') }),
  approve: (flags) => ({ kind: 'approve', proposal: requiredFlag(flags, 'proposal') }),
  cancel: () => ({ kind: 'cancel' }),
  'late-return': (flags, { id, destinationCurrency }) => {
    const currency = existing('destination currency of', id, destinationCurrency ?? undefined);
    return correct({ kind: 'lateReturn', amountMinor: `${sumOf(flags, 'amount', currency)}` });
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

/** The CLI commands `payouts VERB`, one for each verb that changes a payout. */
export const payoutCommands = Object.fromEntries(
  Object.entries(commandsOn).map(([verb, commandOf]) => [
    `payouts ${verb}`,
    (call: Call) => act(call, verb, commandOf),
  ]),
);

function correct(correction: Correction): OperatorCommand {
  return { kind: 'correct', correction };
}

function postingOf(text: string): PostingText {
  const [name = '', currency = '', amount = '', ...rest] = text.split(':');
  const account = ledgerAccounts.find((each) => each === name);
  const minor = isCurrency(currency) ? parseMajor(amount, currency) : undefined;
  // JSON cannot hold a bigint.
  if (account && minor && rest.length === 0) return { account, currency, amountMinor: `${minor}` };
  throw new UsageError(
    `--postings expects account:CURRENCY:amount, separated by commas, not "${text}"; the accounts ` +
      `are ${ledgerAccounts.join(', ')}.`,
  );
}
