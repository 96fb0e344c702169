import type { AttentionReason, Standing } from './payout.js';

/** What a person may do with a payout; each carries who and why. */
export type OperatorCommand =
  /** Ask the rail again and go on from what it says. */
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
  /** Carry out what another person has proposed. */
  | { readonly kind: 'approve'; readonly proposal: string }
  /** The customer's own wish, through the API or the cancel button of the Temporal UI. */
  | { readonly kind: 'cancel' };

export type OperatorRequest = {
  readonly operator: string;
  readonly reason: string;
  readonly command: OperatorCommand;
};

/** Stands for the customer, who acts through the API. */
export const customerName = 'customer';

/** What came of it. A refusal says why; a proposal says who has to do what. */
export type OperatorResult = {
  readonly outcome: 'done' | 'refused' | 'proposed';
  readonly detail: string;
  readonly action: string | null;
};

/** The longest time a person may grant: longer than any scheme takes to say something. */
const longestExtensionMs = 30 * 24 * 60 * 60 * 1000;

/**
 * What is wrong with a request by its form and by what the workflow knows, or undefined. Who
 * acts on a payout that nobody has parked would work against its own workflow. `attention` is
 * undefined while nobody has looked at the row: then the form alone is judged.
 */
export function faultOf(
  request: OperatorRequest,
  attention: AttentionReason | null | undefined,
  now: Date,
): string | undefined {
  const { operator, reason, command } = request;
  if (operator.trim() === '') return 'operator: expected the name of the person who acts';
  if (reason.trim() === '') return 'reason: expected why, in a sentence';
  if (attention === null && command.kind !== 'cancel') {
    return 'the payout does not need a person: nothing is parked';
  }
  switch (command.kind) {
    case 'markSettled':
      return command.evidence.trim() === ''
        ? 'evidence: expected what shows that the rail has paid'
        : undefined;
    case 'failAndRelease':
      return command.statementDate === null || isDay(command.statementDate)
        ? undefined
        : 'statementDate: expected a day, YYYY-MM-DD';
    case 'extendDeadline':
      return faultOfDeadline(command.until, now);
    case 'approve':
      return command.proposal.startsWith('op_')
        ? undefined
        : 'proposal: expected the id of a proposal (op_…)';
    case 'retryNow':
    case 'cancel':
      return undefined;
  }
}

// Without an offset PostgreSQL and this process could each take it for their own time.
const timeOfDay = /^T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-](?:0\d|1[0-4]):[0-5]\d)$/;

function faultOfDeadline(until: string, now: Date): string | undefined {
  const timeMs = Date.parse(until);
  if (!isDay(until.slice(0, 10)) || !timeOfDay.test(until.slice(10)) || Number.isNaN(timeMs)) {
    return 'until: expected an ISO 8601 time with its offset, like 2026-12-01T12:00:00Z';
  }
  if (timeMs <= now.getTime()) return 'until: expected a time that is still to come';
  return timeMs > now.getTime() + longestExtensionMs
    ? 'until: expected a time within 30 days'
    : undefined;
}

/** 31 February is read as 3 March: only a day that exists is printed as it was written. */
function isDay(text: string): boolean {
  const day = new Date(text);
  return !Number.isNaN(day.getTime()) && day.toISOString().slice(0, 10) === text;
}

/** Whether a command moves money, and so needs a second person above the configured sum. */
export function movesMoney(
  command: OperatorCommand,
  { status, attentionReason }: Pick<Standing, 'status' | 'attentionReason'>,
): boolean {
  const isOpen = status === 'processing' || status === 'sent';
  const isConfirmation = !isOpen && attentionReason !== 'return_short';
  const moves = command.kind === 'markSettled' || command.kind === 'failAndRelease';
  return moves && !isConfirmation;
}
