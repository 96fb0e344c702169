import type { LedgerAccount } from './ledger.js';
import { endedUnpaid, hasConflictingReports, isInFlight, type PayoutState } from './payout.js';

/**
 * The kind of actor: a message states that and never a name. Only operators have names of their
 * own; a customer is their account.
 */
export type ActorKind = 'operator' | 'customer' | 'temporal_ui';

/** What an operator may do with a payout. */
export type OperatorCommand =
  /** Ask the rail again and continue from its answer. */
  | { readonly kind: 'retryNow' }
  /** The rail has paid, says the evidence; or: yes, it is settled. */
  | { readonly kind: 'markSettled'; readonly evidence: string }
  /**
   * Give the money back, once the rail has voided the key; or with the day of a closed bank
   * statement as evidence that it never paid; or: yes, it has failed or come back.
   */
  | { readonly kind: 'failAndRelease'; readonly statementDate: string | null }
  /** Wait for the rail until then (ISO 8601). */
  | { readonly kind: 'extendDeadline'; readonly until: string }
  /** Execute what another operator has proposed. */
  | { readonly kind: 'approve'; readonly proposal: string }
  /** The customer's own wish, through the API or the cancel button of the Temporal UI. */
  | { readonly kind: 'cancel' }
  /** Book what sets the books right: always by two people. */
  | { readonly kind: 'correct'; readonly correction: Correction };

/** How books are set right. Amounts are minor units, as text for JSON. */
export type Correction =
  /** The money of a payment after release has come back to us: this much of it. */
  | { readonly kind: 'lateReturn'; readonly amountMinor: string }
  /** What is in suspense is paid for: by the customer as if it had settled, or by the house. */
  | { readonly kind: 'clearSuspense'; readonly charge: 'customer' | 'house' }
  /** This entry should never have been posted. */
  | { readonly kind: 'reverse'; readonly entry: string }
  | { readonly kind: 'book'; readonly postings: readonly PostingText[] };

export type PostingText = {
  readonly account: LedgerAccount;
  readonly currency: string;
  readonly amountMinor: string;
};

/** Who gives a command, by the key that proves it, and why. */
export type Signature = { readonly operatorKey: string; readonly reason: string };

/** A command and who gave it: the name of an operator, or the customer's account. */
export type OperatorRequest = {
  readonly operator: string;
  readonly reason: string;
  readonly command: OperatorCommand;
};

/** What an operator may do, each all that the ones before may. */
export const operatorRoles = ['view', 'operate', 'approve', 'admin'] as const;
export type OperatorRole = (typeof operatorRoles)[number];

/** The outcome of a command. The detail of a refusal is its reason, of a proposal the next step. */
export type OperatorResult = {
  readonly outcome: 'done' | 'refused' | 'proposed';
  readonly detail: string;
  readonly action: string | null;
};

/** The answer to a command that was not executed, and left no line in the audit log. */
export function unexecuted(detail: string): OperatorResult {
  return { outcome: 'refused', detail, action: null };
}

/** The longest time a person may grant: longer than any scheme takes to say something. */
const longestExtensionMs = 30 * 24 * 60 * 60 * 1000;

/**
 * Control characters, line breaks, marks that reverse text and what is invisible could forge what another
 * person reads. The database refuses the same marks (0033_plain_lines.sql).
 */
const forging =
  /[\p{Cc}\p{Zl}\p{Zp}\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/u;
/** Scripts and signs need joiners and variants, but a line of them alone shows nothing. */
const visible = /[^\s\p{Mn}\u200c\u200d]/u;

/** Whether a text that an operator writes is shown to others as it is: one line, and not empty. */
export function isPlainLine(text: string): boolean {
  return visible.test(text) && !forging.test(text);
}

export const expectedLine = 'one line of text without control or invisible characters';

/** The id of an operator's request, and of the line of the audit log that it becomes. */
export const actionId = /^op_[0-9a-z]{26}$/;

/** What is wrong with a command by its form, in the words of the command line; or undefined. */
export function faultOf(command: OperatorCommand, now: Date): string | undefined {
  switch (command.kind) {
    case 'markSettled':
      return typeof command.evidence === 'string' && isPlainLine(command.evidence)
        ? undefined
        : `--evidence expects what shows that the rail has paid, ${expectedLine}.`;
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
  if (correction.kind !== 'book') return undefined;
  const sums = new Map<string, bigint>();
  for (const { currency, amountMinor } of correction.postings) {
    sums.set(currency, (sums.get(currency) ?? 0n) + BigInt(amountMinor));
  }
  const off = [...sums].find(([, sum]) => sum !== 0n);
  return off && `--postings expects a sum of zero in ${off[0]}, not ${off[1]} minor units.`;
}

// Without an offset PostgreSQL and this process could each take it for their own time.
const timeOfDay = /^T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-](?:0\d|1[0-4]):[0-5]\d)$/;

function faultOfDeadline(until: string, now: Date): string | undefined {
  const timeMs = Date.parse(until);
  if (!isDay(until.slice(0, 10)) || !timeOfDay.test(until.slice(10)) || Number.isNaN(timeMs)) {
    return '--until expects an ISO 8601 time with its offset, like 2026-12-01T12:00:00Z.';
  }
  if (timeMs <= now.getTime()) return '--until expects a time that is still to come.';
  return timeMs > now.getTime() + longestExtensionMs
    ? '--until expects a time within 30 days.'
    : undefined;
}

/** 31 February is read as 3 March: only a day that exists is printed as it was written. */
function isDay(text: string): boolean {
  const day = new Date(text);
  return !Number.isNaN(day.getTime()) && day.toISOString().slice(0, 10) === text;
}

/**
 * Whether a command is for parked payouts alone: on any other it would interfere with the payout's
 * own workflow. A customer may always ask, and books are corrected whatever the payout does.
 */
export function requiresParkedPayout(kind: OperatorCommand['kind']): boolean {
  return kind !== 'cancel' && kind !== 'correct';
}

type Parked = Pick<PayoutState, 'status' | 'attentionReason'>;

/**
 * Whether a command needs a second person: it changes the books, or closes a case in which the rail
 * may have paid what the customer has back; or it moves more money than one person may.
 *
 * @param euroCents what the payout is worth; undefined, for want of a rate, is taken for a large sum
 */
export function needsApproval(
  command: OperatorCommand,
  payout: Parked,
  euroCents: bigint | undefined,
  limitEuroCents: bigint,
): boolean {
  const { status, attentionReason } = payout;
  // Of a returned payout a contradiction is a second return, which two people book.
  const mayBePaid =
    attentionReason === 'amount_mismatch' ||
    attentionReason === 'paid_after_release' ||
    (status !== 'returned' && hasConflictingReports(attentionReason));
  if (command.kind === 'correct' || (endsCase(command) && endedUnpaid(status) && mayBePaid))
    return true;
  const isLarge = euroCents === undefined || euroCents > limitEuroCents;
  return movesMoney(command, payout) && isLarge;
}

/**
 * Whether a command pays out or gives back money, or decides whether any comes back of a settled payout
 * whose reports are in dispute: then the sum decides who approves it.
 */
export function movesMoney(command: OperatorCommand, { status, attentionReason }: Parked): boolean {
  const isDisputed = status === 'settled' && hasConflictingReports(attentionReason);
  const isOpen = isInFlight(status) || attentionReason === 'return_short';
  return endsCase(command) && (isOpen || isDisputed);
}

function endsCase({ kind }: OperatorCommand): boolean {
  return kind === 'markSettled' || kind === 'failAndRelease';
}
