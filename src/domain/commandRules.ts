import { writtenSum } from './money.js';
import { mayHaveBeenPaid, type OperatorCommand, requiresParkedPayout } from './operator.js';
import {
  type AttentionReason,
  attentionReasons,
  endedUnpaid,
  hasConflictingReports,
  isInFlight,
  type PayoutStatus,
  type WakeablePayout,
} from './payout.js';

/** The state of a payout by which commands are checked before the rail is queried, and which people see. */
export type CommandState = {
  readonly id: string;
  readonly status: PayoutStatus;
  readonly attentionReason: AttentionReason | null;
  /** Of a row. A workflow learns only whether it is `corrected`. */
  readonly statusReason?: string | null;
  readonly isAccepted: boolean;
  /** Whether the order was, or may have been, submitted to the rail. */
  readonly isSubmitted: boolean;
  /** The rail's settlement deadline, ISO 8601; null before the payout is accepted. */
  readonly settleBy: string | null;
};

type Terms = Pick<
  WakeablePayout,
  'fixedSide' | 'amount' | 'sourceMinor' | 'receiveMinor' | 'sourceCurrency' | 'destinationCurrency'
>;

/** Describes the order, such as "1,250.00 USD to 1,146.03 EUR". Before the decision, parts may be unknown. */
export function orderText(terms: Terms): string {
  const { fixedSide, amount, sourceCurrency, destinationCurrency } = terms;
  const side = (name: 'source' | 'destination', minor: bigint | null, currency: string | null) => {
    const known = minor ?? (fixedSide === name ? amount : null);
    if (currency === null) return 'an unknown currency';
    return known === null ? currency : writtenSum(known, currency);
  };
  const source = side('source', terms.sourceMinor, sourceCurrency);
  return `${source} to ${side('destination', terms.receiveMinor, destinationCurrency)}`;
}

/** Derives the state from a payout's row. */
export function commandStateOf(row: {
  readonly id: string;
  readonly status: PayoutStatus;
  readonly statusReason: string | null;
  readonly attentionReason: AttentionReason | null;
  readonly rail: string | null;
  readonly submitStartedAt: Date | null;
  /** Set without a submission if that was lost with the database. */
  readonly sentSince: Date | null;
  readonly settleBy: Date | null;
}): CommandState {
  const { id, status, statusReason, attentionReason, rail, settleBy } = row;
  return {
    ...{ id, status, statusReason, attentionReason },
    isAccepted: rail !== null,
    isSubmitted: (row.submitStartedAt ?? row.sentSince) !== null,
    settleBy: settleBy?.toISOString() ?? null,
  };
}

/** Returns what a payout waits for and who can act on it, or undefined if it waits for nothing. */
export function waitOf(state: CommandState): { waitsFor: string; who: string } | undefined {
  const { status, attentionReason, isSubmitted, settleBy } = state;
  if (attentionReason !== null) {
    const who = isWithBank(attentionReason) ? 'an operator, after asking the bank' : 'an operator';
    return { waitsFor: attentionReasons[attentionReason], who };
  }
  if (status === 'pending')
    return { waitsFor: 'It is waiting to be decided.', who: 'the service, automatically' };
  if (status === 'sent') {
    const parking = settleBy === null ? '' : `; the first check after ${settleBy} parks it`;
    return { waitsFor: `It is waiting for the bank to settle it${parking}.`, who: 'the bank' };
  }
  if (status !== 'processing') return undefined;
  return isSubmitted
    ? { waitsFor: 'The bank has not answered yet: the service keeps trying.', who: 'the bank' }
    : { waitsFor: 'It is waiting to be sent to the bank.', who: 'the service, automatically' };
}

const isWithBank = (reason: AttentionReason) => reason !== 'unexpected_failure';

// Unparking is refused while reports conflict: one report was wrong, yet the next one would end the payout.
export const conflicting =
  "The rail's reports contradict each other, so neither another report nor more time proves anything. " +
  'Use settle with evidence, or fail with the --statement-date of a closed statement.';

const neverSent =
  'The order was never sent, so the bank cannot have paid it. Use retry to continue it, or fail to release the money.';

export const partlyReturned =
  'The rail returned only part of the amount. Use fail to accept that as final, or settle once the bank has ' +
  'shown that it paid.';

const unrepeatable =
  'The order cannot be sent again, so waiting changes nothing. Use retry, settle with evidence, or fail with ' +
  'the --statement-date of a closed statement.';

export const maybeTaken =
  'The rail may have accepted the payout: an operator has to ask the bank, then use settle or fail.';

/**
 * Returns why a command is refused by the payout's row alone, or undefined if it may be accepted. The
 * command line and the Temporal UI offer the other commands; the deciding activity checks this first.
 */
export function refusalOf(kind: OperatorCommand['kind'], state: CommandState): string | undefined {
  const { status, attentionReason, isAccepted, isSubmitted } = state;
  if (attentionReason === null && requiresParkedPayout(kind)) return unneeded(state);
  if (kind === 'approve') return undefined;
  if (kind === 'cancel') {
    if (status === 'canceled') return undefined;
    // A retry that waits because its first payout may have been paid was never sent itself.
    const isUnsent = status === 'processing' && !isSubmitted;
    const isUnknown = attentionReason === 'outcome_unknown' && !isUnsent;
    const isOfRail = isUnknown || hasConflictingReports(attentionReason);
    if ((status === 'processing' || status === 'pending') && isOfRail) return maybeTaken;
    const isUndecided = status === 'pending' && attentionReason !== null;
    const isOpen = isUndecided || (status === 'processing' && isAccepted);
    return isOpen ? undefined : `The payout is ${status}.`;
  }
  if (!isAccepted) {
    const ends = kind === 'failAndRelease' ? endedUnpaid(status) : status === 'pending';
    return ends && (kind === 'retryNow' || kind === 'failAndRelease')
      ? undefined
      : 'The payout has not been accepted.';
  }
  return kind === 'correct' ? undefined : refusalOfAccepted(kind, state);
}

type Resolving = Exclude<OperatorCommand['kind'], 'approve' | 'cancel' | 'correct'>;

function refusalOfAccepted(kind: Resolving, state: CommandState) {
  const { status, attentionReason, isSubmitted } = state;
  const isDisputed = hasConflictingReports(attentionReason);
  const is = `The payout is ${status}`;
  const confirm = status === 'settled' ? 'settle' : 'fail';
  switch (kind) {
    case 'retryNow':
      if (!isInFlight(status)) return `${is}. Confirm it with ${confirm}.`;
      return attentionReason === 'return_short' && status === 'sent' ? partlyReturned : undefined;
    case 'markSettled':
      if (status === 'processing' && !isSubmitted && !isDisputed) return neverSent;
      return status === 'failed' || status === 'canceled'
        ? `${is} and can no longer be settled. Book what the bank has paid with late-return, clear-suspense or correct.`
        : undefined;
    case 'failAndRelease':
      return status === 'settled' && !isDisputed
        ? `${is}; only a return from the bank can refund it.`
        : undefined;
    case 'extendDeadline':
      if (!isInFlight(status)) return `${is}; there is nothing to wait for.`;
      if (attentionReason === 'outcome_unknown') return unrepeatable;
      return isDisputed ? conflicting : undefined;
  }
}

function unneeded(state: CommandState): string {
  const { status, isSubmitted } = state;
  const wait = waitOf(state);
  if (wait === undefined) return `The payout does not need an operator: it is ${status}.`;
  const only =
    status === 'processing' && isSubmitted
      ? ' Only cancel can end it sooner: it asks the bank to void the order.'
      : '';
  return `The payout is not parked, so it does not need an operator. ${wait.waitsFor}${only}`;
}

/** A command that may currently be accepted, and its effect. */
export type Offer = { readonly command: string; readonly does: string };

/**
 * Returns the commands that the payout's current state allows. The rail's answer may still prevent one.
 *
 * @param suspenseMinor the payout's balance in suspense, which must be cleared before a confirmation can
 *   close the case: below zero if the rail paid what nobody was charged for
 */
export function offersOf(state: CommandState, suspenseMinor: bigint): readonly Offer[] {
  const { id, attentionReason } = state;
  const offer = (command: string, does: string) => ({
    command: `corridor payouts ${command.replace(/^\S+/, `$& ${id}`)} --reason TEXT`,
    does,
  });
  const closes = (['retryNow', 'markSettled', 'failAndRelease', 'extendDeadline'] as const)
    .filter((kind) => refusalOf(kind, state) === undefined)
    .filter((kind) => suspenseMinor === 0n || kind === 'extendDeadline')
    .flatMap((kind) => resolving[kind](state));
  const cancels =
    refusalOf('cancel', state) === undefined && state.status !== 'canceled'
      ? [['cancel', "cancels it on the customer's behalf, unless the bank already has the order"]]
      : [];
  const isOver = attentionReason !== null && !isInFlight(state.status);
  const clears = suspenseMinor < 0n ? clearing : [];
  const corrections = suspenseMinor !== 0n || isOver ? [...clears, correcting] : [];
  const books = refusalOf('correct', state) === undefined ? corrections : [];
  return [...closes, ...cancels, ...books].map(([command = '', does = '']) => offer(command, does));
}

type Lines = readonly (readonly [command: string, does: string])[];

const clearing: Lines = [
  ['late-return --amount SUM', 'books the amount that came back; a second operator must approve'],
  [
    'clear-suspense --charge customer',
    'charges the full amount, if none has come back; a second operator must approve',
  ],
  ['clear-suspense --charge house', 'writes it off; a second operator must approve'],
];

const correcting: Lines[number] = [
  'correct --postings LIST',
  'books what the bank actually did; a second operator must approve',
];

const confirms = (state: CommandState) =>
  `confirms the status ${state.status}${endedUnpaid(state.status) ? approvalOf(state) : ''}`;

const approvalOf = (state: CommandState) =>
  mayHaveBeenPaid(state) ? '; a second operator must approve' : '';

/** Command lines by kind of command, each with a description of its effect in the payout's situation. */
const resolving: Readonly<Record<Resolving, (state: CommandState) => Lines>> = {
  retryNow: (state) => {
    if (state.status === 'pending') return [['retry', `decides it again${approvalOf(state)}`]];
    return hasConflictingReports(state.attentionReason)
      ? [['retry', 'closes the case only if the bank now reports that it paid the amount sent']]
      : [['retry', 'asks the bank again; may be refused if the bank reports nothing new']];
  },
  markSettled: (state) => [
    isInFlight(state.status)
      ? ['settle --evidence TEXT', 'settles it, on evidence that the bank has paid']
      : ['settle --evidence TEXT', confirms(state)],
  ],
  failAndRelease: (state) => {
    const { status, attentionReason, isSubmitted, settleBy } = state;
    if (endedUnpaid(status)) return [['fail', confirms(state)]];
    if (attentionReason === 'return_short')
      return [['fail', 'accepts the partial return as final, if the bank still reports a return']];
    if (!isInFlight(status)) return [['fail', 'books the return, if the bank reports one']];
    const isDisputed = hasConflictingReports(attentionReason);
    if (!isSubmitted && !isDisputed)
      return [['fail', 'releases the hold: the order was never sent to the bank']];
    const proof = 'releases the hold if closed statements up to that day show no payment';
    const day = settleBy?.slice(0, 10);
    const from = day ? ` (${day} or the day after, once it is closed)` : '';
    const statement = ['fail --statement-date YYYY-MM-DD', `${proof}${from}`] as const;
    // A bank that no longer knows the key neither rejects nor voids it, so only a statement is evidence.
    if (isDisputed || attentionReason === 'outcome_unknown') return [statement];
    const refuses = status === 'sent' ? 'has rejected' : 'rejects or voids';
    return [['fail', `releases the hold if the bank ${refuses} it`], statement];
  },
  extendDeadline: () => [
    ['extend --until ISO-TIME', 'gives the bank until then; no command can shorten this'],
  ],
};

/** Returns the description of a payout for the Temporal UI, in the UI's dialect of Markdown. */
export function detailsOf(
  state: CommandState & { readonly order: string; readonly accountId: string },
  found: string,
): string {
  const { id, status, attentionReason, order, accountId } = state;
  const wait = waitOf(state);
  // The workflow does not know the amount in suspense. Only a correction can leave more than zero there.
  const offers = offersOf(state, attentionReason === 'paid_after_release' ? -1n : 0n);
  return [
    `**${order}**, account \`${accountId}\``,
    attentionReason === null ? `Status: ${status}.` : `**Needs an operator: ${attentionReason}**`,
    ...(wait === undefined ? [] : [`${wait.waitsFor} Who can act: ${wait.who}.`]),
    ...(found === '' || found === wait?.waitsFor ? [] : [found]),
    ...(offers.length === 0 ? [] : ['Available commands:', offers.map(offerLine).join('\n')]),
    `Full history: \`corridor payouts show ${id}\``,
  ].join('\n\n');
}

const offerLine = ({ command, does }: Offer) => `- \`${command}\`: ${does}`;
