import reasons from './attentionReasons.json' with { type: 'json' };

/**
 * The statuses of a payout and all moves between them. The code and a property test use this table; tests
 * compare it with the docs and with the database's check.
 */
export const nextStatuses = {
  pending: ['processing', 'failed', 'canceled'],
  processing: ['sent', 'failed', 'canceled'],
  sent: ['settled', 'failed', 'returned'],
  settled: ['returned'],
  failed: [],
  canceled: [],
  returned: [],
} as const;

export type PayoutStatus = keyof typeof nextStatuses;

/** All statuses, in the order of the table. */
export const payoutStatuses: readonly PayoutStatus[] = Object.keys(nextStatuses).filter(isStatus);

function isStatus(text: string): text is PayoutStatus {
  return Object.hasOwn(nextStatuses, text);
}

/** The current status of a payout, and the time at which it reached each status. */
export type StatusRecord = {
  readonly status: PayoutStatus;
  readonly statusReason: string | null;
  /** The payout has been pending since this time. */
  readonly requestedAt: Date;
} & { readonly [Status in Exclude<PayoutStatus, 'pending'> as `${Status}Since`]: Date | null };

export type StatusChange = {
  readonly status: PayoutStatus;
  /** ISO 8601 UTC with milliseconds. */
  readonly at: string;
  readonly reason: string | null;
};

/**
 * Returns the statuses of a payout up to its current one, in order. No move leads back to an earlier status.
 * Only a final status has a reason.
 */
export function statusHistory(record: StatusRecord): readonly StatusChange[] {
  const passed = payoutStatuses.slice(0, payoutStatuses.indexOf(record.status) + 1);
  return passed.flatMap((status) => {
    const since = status === 'pending' ? record.requestedAt : record[`${status}Since`];
    const reason = status === record.status ? record.statusReason : null;
    return since === null ? [] : [{ status, at: since.toISOString(), reason }];
  });
}

/** Whether the payout is in flight: the money is held, and the rail may have received the order. */
export function isInFlight(status: PayoutStatus): boolean {
  return status === 'processing' || status === 'sent';
}

/** Whether the payout ended before any payment, so that its hold was released. */
export function isReleased(status: PayoutStatus): boolean {
  return status === 'failed' || status === 'canceled';
}

/**
 * Whether the payout ended and, by its status, the beneficiary does not have the money. Whether it may be
 * retried: `refuseRetry` in acceptance.ts.
 */
export function endedUnpaid(status: PayoutStatus): boolean {
  return isReleased(status) || status === 'returned';
}

/** Whether a status is final for the payout's workflow. A settled payout may still be returned. */
export function isFinal(status: PayoutStatus): boolean {
  return status !== 'pending' && !isInFlight(status);
}

/** The reasons why a payout waits for an operator. A reason is stored in addition to the status. */
export const attentionReasons = reasons;

export type AttentionReason = keyof typeof attentionReasons;

/** The reason why a payout waits for an operator, and all findings about it, one per line. */
export type Attention = { readonly reason: AttentionReason; readonly detail: string };

/** Whether the rail's reports conflict. While they do, no single report may move money. */
export function hasConflictingReports(reason: AttentionReason | null): boolean {
  return reason === 'amount_mismatch' || reason === 'contradiction' || reason === 'return_short';
}

/** Whether the payout only waits for the rail: a definite report from the rail removes the reason. */
export function isWaitingForRail(reason: AttentionReason | null): boolean {
  return (
    reason === 'outcome_unknown' || reason === 'settle_by_passed' || reason === 'unexpected_failure'
  );
}

/** Length at which the detail stops growing, after about twenty findings. The inbox keeps every report. */
const longestDetail = 2_000;

/**
 * Combines a new finding with the attention that a payout already needs. The first reason stays and later
 * findings are added to its detail, with two exceptions: money in suspense outranks every reason, and
 * a conflict outranks a reason that only waits for the rail, which a single report would remove.
 */
export function withAttention(first: Attention | null, found: Attention): Attention {
  if (first === null) return found;
  const outranks =
    found.reason === 'paid_after_release' ||
    (isWaitingForRail(first.reason) && !isWaitingForRail(found.reason));
  const { detail } = first;
  const added = () => {
    if (detail.includes(found.detail)) return detail;
    if (detail.length < longestDetail) return `${detail}\n${found.detail}`;
    // The count changes with every finding, so a command begun before it is evaluated again.
    const [, shown = detail, more = '0'] = /^(.*)\n… and (\d+) more\.$/s.exec(detail) ?? [];
    return `${shown}\n… and ${BigInt(more) + 1n} more.`;
  };
  return { reason: outranks ? found.reason : first.reason, detail: added() };
}

/** Returns the rail key of a payout: its id and never a random value, so that a repeat is idempotent. */
export function railKey(payoutId: string): string {
  return payoutId;
}

/** Returns the payout id that a rail key belongs to. The payout may not exist. */
export function payoutOfKey(key: string): string {
  return key;
}

/** The input of a payout's workflow: its id, and the properties by which operators search. */
export type WakeablePayout = {
  readonly id: string;
  readonly accountId: string;
  readonly mode: 'test' | 'live';
  readonly batchId: string | null;
  readonly sourceCurrency: string | null;
  readonly destinationCurrency: string | null;
  readonly settleBy: Date | null;
  /** The order as shown to people, as far as known: see `orderText`. */
  readonly fixedSide: 'source' | 'destination' | null;
  readonly amount: bigint | null;
  readonly sourceMinor: bigint | null;
  readonly receiveMinor: bigint | null;
};

/** The final status that a voided key leads to: `canceled` by a cancellation, `failed` by an operator. */
export type VoidOutcome = 'canceled' | 'failed';
