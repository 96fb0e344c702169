import { isDay } from './day.js';
import type { PayoutState } from './factEffect.js';
import type { Posting } from './ledger.js';
import { endedUnpaid, hasConflictingReports, isInFlight } from './payout.js';

/**
 * The kind of actor. Messages name only the kind, never a person. Only operators have names; a customer is
 * identified by their account.
 */
export type ActorKind = 'operator' | 'customer' | 'temporal_ui';

/** A command on a payout. */
export type OperatorCommand =
  /** Queries the rail again and continues from its answer. */
  | { readonly kind: 'retryNow' }
  /** Settles the payout on evidence that the rail has paid, or confirms that it is settled. */
  | { readonly kind: 'markSettled'; readonly evidence: string }
  /**
   * Releases the hold once the rail has voided the key, or with the day of a closed bank statement
   * as evidence that the rail never paid. Or confirms that the payout has failed or was returned.
   */
  | { readonly kind: 'failAndRelease'; readonly statementDate: string | null }
  /** Extends the wait for the rail until a time (ISO 8601). */
  | { readonly kind: 'extendDeadline'; readonly until: string }
  /** Executes another operator's proposal. */
  | { readonly kind: 'approve'; readonly proposal: string }
  /** Requested by the customer through the API, or by the cancel button of the Temporal UI. */
  | { readonly kind: 'cancel' }
  /** Corrects the books; always requires two people. */
  | { readonly kind: 'correct'; readonly correction: Correction };

/** A correction of a payout's books. Amounts are minor units, as text for JSON. */
export type Correction =
  /** This amount of a payment after release has been returned to us. */
  | { readonly kind: 'lateReturn'; readonly amountMinor: string }
  /** Clears suspense: charges the customer as if the payout had settled, or writes the amount off. */
  | { readonly kind: 'clearSuspense'; readonly charge: 'customer' | 'house' }
  /** Reverses an entry that should never have been posted. */
  | { readonly kind: 'reverse'; readonly entry: string }
  | { readonly kind: 'book'; readonly postings: readonly PostingText[] };

export type PostingText = Omit<Posting, 'amountMinor'> & { readonly amountMinor: string };

/** The key that authenticates the operator of a command, and the operator's reason. */
export type Signature = { readonly operatorKey: string; readonly reason: string };

/** A command and its author: the name of an operator, or the customer's account. */
export type OperatorRequest = {
  readonly operator: string;
  readonly reason: string;
  readonly command: OperatorCommand;
};

/** The roles of operators. Each role includes the permissions of the roles before it. */
export const operatorRoles = ['view', 'operate', 'approve', 'admin'] as const;
export type OperatorRole = (typeof operatorRoles)[number];

/** The outcome of a command. `detail` is the reason of a refusal, or the next step after a proposal. */
export type OperatorResult = {
  readonly outcome: 'done' | 'refused' | 'proposed';
  readonly detail: string;
  readonly action: string | null;
};

/** Returns the result of a command that was not executed and has no line in the audit log. */
export function unexecuted(detail: string): OperatorResult {
  return { outcome: 'refused', detail, action: null };
}

/** Maximum extension that an operator may grant, longer than any scheme takes to report. */
const longestExtensionMs = 30 * 24 * 60 * 60 * 1000;

/**
 * Control characters, line breaks, bidirectional marks and invisible characters, which could falsify what
 * another person reads. The database refuses the same characters (0033_plain_lines.sql).
 */
const forging =
  /[\p{Cc}\p{Zl}\p{Zp}\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/u;
/** Some scripts and emoji need joiners and variation selectors, but a line of only these shows nothing. */
const visible = /[^\s\p{Mn}\u200c\u200d]/u;

/** Whether an operator's text is displayed exactly as written: one line, not empty, no forging characters. */
export function isPlainLine(text: string): boolean {
  return visible.test(text) && !forging.test(text);
}

export const expectedLine = 'one line of text without control or invisible characters';

/** The id of an operator's request, which its line in the audit log keeps. */
export const actionId = /^op_[0-9a-z]{26}$/;

/** Returns what is wrong with the form of a command, phrased for the command line, or undefined. */
export function faultOf(command: OperatorCommand, now: Date): string | undefined {
  switch (command.kind) {
    case 'markSettled':
      return typeof command.evidence === 'string' && isPlainLine(command.evidence)
        ? undefined
        : `--evidence expects the proof that the rail has paid, ${expectedLine}.`;
    case 'failAndRelease':
      return command.statementDate === null || isDay(command.statementDate)
        ? undefined
        : '--statement-date expects a day, YYYY-MM-DD.';
    case 'extendDeadline':
      return faultOfDeadline(command.until, now);
    case 'approve':
      return actionId.test(command.proposal)
        ? undefined
        : '--proposal expects the id of a proposal (op_…).';
    case 'correct':
      return faultOfCorrection(command.correction);
    case 'retryNow':
    case 'cancel':
      return undefined;
  }
}

function faultOfCorrection(correction: Correction): string | undefined {
  if (correction.kind === 'reverse' && !/^\d{1,18}$/.test(correction.entry)) {
    return '--entry expects the number of an entry, as corridor payouts show prints it.';
  }
  if (correction.kind === 'lateReturn' && !/^[1-9]\d{0,17}$/.test(correction.amountMinor))
    return '--amount expects a sum above zero, at most 18 digits of minor units.';
  if (correction.kind !== 'book') return undefined;
  if (!correction.postings.every(({ amountMinor }) => /^-?[1-9]\d{0,17}$/.test(amountMinor)))
    return '--postings expects sums other than zero, at most 18 digits of minor units each.';
  const sums = new Map<string, bigint>();
  for (const { currency, amountMinor } of correction.postings) {
    sums.set(currency, (sums.get(currency) ?? 0n) + BigInt(amountMinor));
  }
  const off = [...sums].find(([, sum]) => sum !== 0n);
  return off && `--postings expects a sum of zero in ${off[0]}, not ${off[1]} minor units.`;
}

// The offset is required: without one, PostgreSQL and this process could assume different time zones.
const timeOfDay = /^T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-](?:0\d|1[0-4]):[0-5]\d)$/;

function faultOfDeadline(until: string, now: Date): string | undefined {
  const timeMs = Date.parse(until);
  if (!isDay(until.slice(0, 10)) || !timeOfDay.test(until.slice(10)) || Number.isNaN(timeMs)) {
    return '--until expects an ISO 8601 time with an offset, such as 2026-12-01T12:00:00Z.';
  }
  if (timeMs <= now.getTime()) return '--until expects a time in the future.';
  return timeMs > now.getTime() + longestExtensionMs
    ? '--until expects a time within 30 days.'
    : undefined;
}

/**
 * Whether a command is allowed only on parked payouts; on others it would interfere with the payout's
 * workflow. A customer may always request a cancellation, and books can always be corrected.
 */
export function requiresParkedPayout(kind: OperatorCommand['kind']): boolean {
  return kind !== 'cancel' && kind !== 'correct';
}

type Parked = Pick<PayoutState, 'status' | 'attentionReason'> & {
  readonly statusReason?: string | null;
};

/**
 * Whether the rail may have paid what the customer has too. On a returned payout, conflicting reports mean a
 * second return, which two people book, unless it is returned because two people have reversed its settlement.
 */
export function mayHaveBeenPaid({ status, attentionReason, statusReason }: Parked): boolean {
  return (
    attentionReason === 'amount_mismatch' ||
    attentionReason === 'paid_after_release' ||
    ((status !== 'returned' || statusReason === 'corrected') &&
      hasConflictingReports(attentionReason))
  );
}

/**
 * Whether a command needs a second person's approval: it corrects the books, or closes a case in which
 * the rail may have paid money that the customer has, or moves more than one person may.
 *
 * @param euroCents the payout's value; undefined if no rate is known, which counts as a large amount
 */
export function needsApproval(
  command: OperatorCommand,
  payout: Parked,
  euroCents: bigint | undefined,
  limitEuroCents: bigint,
): boolean {
  const isEnded = endsCase(command) && endedUnpaid(payout.status);
  // A payout that the rail reports on before its decision: the decision may refuse what the rail has paid.
  const isUndecided = command.kind === 'retryNow' && payout.status === 'pending';
  if (command.kind === 'correct') return true;
  if ((isEnded || isUndecided) && mayHaveBeenPaid(payout)) return true;
  const isLarge = euroCents === undefined || euroCents > limitEuroCents;
  return movesMoney(command, payout) && isLarge;
}

/**
 * Whether an operator may approve a proposal: two people have to agree, so nobody approves their own. The
 * database enforces the same on whoever bypasses the worker (`require_request`, 0039_honest_lines.sql), and
 * for a week also refuses an operator whose key came from the same hands (`record_request`,
 * 0031_separate_identities.sql).
 */
export function mayApprove(proposal: { readonly operator: string }, operator: string): boolean {
  return proposal.operator !== operator;
}

/**
 * Whether a command captures or releases money, or decides whether a settled payout with conflicting
 * reports was returned. Such commands need approval above an amount.
 */
export function movesMoney(command: OperatorCommand, { status, attentionReason }: Parked): boolean {
  const isDisputed = status === 'settled' && hasConflictingReports(attentionReason);
  const isOpen = isInFlight(status) || attentionReason === 'return_short';
  return endsCase(command) && (isOpen || isDisputed);
}

function endsCase({ kind }: OperatorCommand): boolean {
  return kind === 'markSettled' || kind === 'failAndRelease';
}
