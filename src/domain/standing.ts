import { writtenSum } from './money.js';
import { type OperatorCommand, requiresParkedPayout } from './operator.js';
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
export type Standing = {
  readonly id: string;
  readonly status: PayoutStatus;
  readonly attentionReason: AttentionReason | null;
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

/** Derives the standing from a payout's row. */
export function standingOf(row: {
  readonly id: string;
  readonly status: PayoutStatus;
  readonly attentionReason: AttentionReason | null;
  readonly rail: string | null;
  readonly submitStartedAt: Date | null;
  readonly settleBy: Date | null;
}): Standing {
  const { id, status, attentionReason, rail, submitStartedAt, settleBy } = row;
  return {
    ...{ id, status, attentionReason },
    isAccepted: rail !== null,
    isSubmitted: submitStartedAt !== null,
    settleBy: settleBy?.toISOString() ?? null,
  };
}

/** Returns what a payout waits for and who can act on it, or undefined if it waits for nothing. */
export function waitOf(standing: Standing): { waitsFor: string; who: string } | undefined {
  const { status, attentionReason, isSubmitted, settleBy } = standing;
  if (attentionReason !== null) {
    const who = isWithBank(attentionReason)
      ? 'an operator, with what the bank says'
      : 'an operator';
    return { waitsFor: attentionReasons[attentionReason], who };
  }
  if (status === 'pending')
    return { waitsFor: 'It waits for its decision.', who: 'the service, by itself' };
  if (status === 'sent') {
    const until = settleBy === null ? '' : `, until ${settleBy}`;
    return { waitsFor: `It waits for the bank to settle it${until}.`, who: 'the bank' };
  }
  if (status !== 'processing') return undefined;
  return isSubmitted
    ? { waitsFor: 'The bank has not answered the order: the service asks again.', who: 'the bank' }
    : { waitsFor: 'It is to be given to the bank.', who: 'the service, by itself' };
}

const isWithBank = (reason: AttentionReason) => reason !== 'unexpected_failure';

// Unparking is refused while reports conflict: one report was wrong, yet the next one would end the payout.
export const conflicting =
  "The rail's reports contradict each other, so neither its next one nor more time is proof. " +
  'Use settle with evidence, or fail with the day of a statement.';

export const partlyReturned =
  'The rail returned a part of it. Use fail to take that as final, or settle once the bank has shown ' +
  'that it paid.';

export const maybeTaken = 'The rail may have taken the payout: an operator has to find out.';

/**
 * Returns why a command is refused by the payout's row alone, or undefined if it may be accepted. The
 * command line and the Temporal UI offer the other commands; the deciding activity checks this first.
 */
export function refusalOf(kind: OperatorCommand['kind'], standing: Standing): string | undefined {
  const { status, attentionReason, isAccepted } = standing;
  if (attentionReason === null && requiresParkedPayout(kind)) return unneeded(standing);
  if (kind === 'approve') return undefined;
  if (kind === 'cancel') {
    if (status === 'canceled') return undefined;
    const isOfRail =
      attentionReason === 'outcome_unknown' || hasConflictingReports(attentionReason);
    if (status === 'processing' && isOfRail) return maybeTaken;
    const isUndecided = status === 'pending' && attentionReason !== null;
    const isOpen = isUndecided || (status === 'processing' && isAccepted);
    return isOpen ? undefined : `The payout is ${status}.`;
  }
  if (!isAccepted) {
    const ends = kind === 'failAndRelease' ? endedUnpaid(status) : status === 'pending';
    return ends && (kind === 'retryNow' || kind === 'failAndRelease')
      ? undefined
      : 'The payout was never accepted.';
  }
  return kind === 'correct' ? undefined : refusalOfAccepted(kind, standing);
}

type Resolving = Exclude<OperatorCommand['kind'], 'approve' | 'cancel' | 'correct'>;

function refusalOfAccepted(kind: Resolving, { status, attentionReason }: Standing) {
  const isDisputed = hasConflictingReports(attentionReason);
  const is = `The payout is ${status}`;
  const confirm = status === 'settled' ? 'settle' : 'fail';
  switch (kind) {
    case 'retryNow':
      if (!isInFlight(status)) return `${is}. Confirm it with ${confirm}.`;
      return attentionReason === 'return_short' && status === 'sent' ? partlyReturned : undefined;
    case 'markSettled':
      return status === 'failed' || status === 'canceled'
        ? `${is} and cannot be settled any more. Confirm it with fail; book what the bank has paid with correct.`
        : undefined;
    case 'failAndRelease':
      return status === 'settled' && !isDisputed
        ? `${is}; only a return gives money back.`
        : undefined;
    case 'extendDeadline':
      if (!isInFlight(status)) return `${is}; there is nothing to wait for.`;
      return isDisputed ? conflicting : undefined;
  }
}

function unneeded(standing: Standing): string {
  const { status, isSubmitted } = standing;
  const wait = waitOf(standing);
  if (wait === undefined) return `The payout does not need a person: it is ${status}.`;
  const only =
    status === 'processing' && isSubmitted
      ? ' Only cancel can end it sooner: it asks the bank to void the order.'
      : '';
  return `The payout does not need a person: nothing is parked. ${wait.waitsFor}${only}`;
}

/** A command that may currently be accepted, and its effect. */
export type Offer = { readonly command: string; readonly does: string };

/**
 * Returns the commands that the payout's current state allows. The rail's answer may still prevent one.
 *
 * @param isInSuspense whether money of the payout is in suspense, which must be cleared before a
 *   confirmation can close the case
 */
export function offersOf(standing: Standing, isInSuspense: boolean): readonly Offer[] {
  const { id, attentionReason } = standing;
  const offer = (command: string, does: string) => ({
    command: `corridor payouts ${command.replace(/^\S+/, `$& ${id}`)} --reason TEXT`,
    does,
  });
  const closes = (['retryNow', 'markSettled', 'failAndRelease', 'extendDeadline'] as const)
    .filter((kind) => refusalOf(kind, standing) === undefined)
    .filter((kind) => !isInSuspense || kind === 'extendDeadline')
    .flatMap((kind) => resolving[kind](standing));
  const cancels =
    refusalOf('cancel', standing) === undefined && standing.status !== 'canceled'
      ? [['cancel', 'cancels it for the customer, if the bank has not taken the order']]
      : [];
  const isOver = attentionReason !== null && !isInFlight(standing.status);
  const corrections = isInSuspense ? [...clearing, correcting] : isOver ? [correcting] : [];
  const books = refusalOf('correct', standing) === undefined ? corrections : [];
  return [...closes, ...cancels, ...books].map(([command = '', does = '']) => offer(command, does));
}

type Lines = readonly (readonly [command: string, does: string])[];

const clearing: Lines = [
  ['late-return --amount 10.00', 'books what came back; a second operator approves'],
  ['clear-suspense --charge customer', 'charges the customer; a second operator approves'],
  ['clear-suspense --charge house', 'writes it off; a second operator approves'],
];

const correcting: Lines[number] = [
  'correct --postings LIST',
  'books what the bank really did; a second operator approves',
];

/** Command lines by kind of command, each with a description of its effect in the payout's situation. */
const resolving: Readonly<Record<Resolving, (standing: Standing) => Lines>> = {
  retryNow: ({ status, attentionReason }) => {
    if (status === 'pending') return [['retry', 'decides it again']];
    return hasConflictingReports(attentionReason)
      ? [['retry', 'ends the case only if the bank now says that it paid the amount sent']]
      : [['retry', 'asks the bank again; without a new answer it may be refused']];
  },
  markSettled: ({ status }) => [
    isInFlight(status)
      ? ['settle --evidence TEXT', 'settles it on what the bank has shown']
      : ['settle --evidence TEXT', `confirms that it is ${status}`],
  ],
  failAndRelease: ({ status, attentionReason, isSubmitted, settleBy }) => {
    if (endedUnpaid(status)) return [['fail', `confirms that it is ${status}`]];
    if (attentionReason === 'return_short')
      return [['fail', 'takes what came back as its end, if the bank still says returned']];
    if (!isInFlight(status)) return [['fail', 'books the return, if the bank says returned']];
    const isDisputed = hasConflictingReports(attentionReason);
    if (!isSubmitted && !isDisputed)
      return [['fail', 'releases the hold: the bank was never given the order']];
    const proof = 'releases the hold if closed statements up to that day show no payment';
    const from =
      settleBy === null ? '' : ` (${settleBy.slice(0, 10)} or later, once the bank has closed it)`;
    const statement = ['fail --statement-date YYYY-MM-DD', `${proof}${from}`] as const;
    // A bank that no longer knows the key neither rejects nor voids it, so only a statement is evidence.
    return isDisputed || attentionReason === 'outcome_unknown'
      ? [statement]
      : [
          [
            'fail',
            `releases the hold if the bank ${status === 'sent' ? 'has rejected' : 'rejects or voids'} it`,
          ],
          statement,
        ];
  },
  extendDeadline: () => [
    ['extend --until ISO-TIME', 'waits for the bank until then; no command shortens that'],
  ],
};

/** Returns the description of a payout for the Temporal UI, in the UI's dialect of Markdown. */
export function detailsOf(
  standing: Standing & { readonly order: string; readonly accountId: string },
  found: string,
): string {
  const { id, status, attentionReason, order, accountId } = standing;
  const wait = waitOf(standing);
  const offers = offersOf(standing, attentionReason === 'paid_after_release');
  return [
    `**${order}**, account \`${accountId}\``,
    attentionReason === null ? `Status: ${status}.` : `**Needs a person: ${attentionReason}**`,
    ...(wait === undefined ? [] : [`${wait.waitsFor} Who can act: ${wait.who}.`]),
    ...(found === '' || found === wait?.waitsFor ? [] : [found]),
    ...(offers.length === 0 ? [] : ['What may be done:', offers.map(offerLine).join('\n')]),
    `Everything that happened to it: \`corridor payouts show ${id}\``,
  ].join('\n\n');
}

const offerLine = ({ command, does }: Offer) => `- \`${command}\`: ${does}`;
