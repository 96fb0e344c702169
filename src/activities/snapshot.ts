import type { Sql } from '../db/client.js';
import type { OwnedEntry } from '../db/ledger.js';
import { type LockedPayout, type PayoutRow, parkPayouts } from '../db/payouts.js';
import { type Attention, type PayoutStatus, withAttention } from '../domain/payout.js';
import { orderText, standingOf } from '../domain/standing.js';

/** The state of a payout after a step, as needed by its workflow and the deliverer of its events. */
export type PayoutSnapshot = {
  readonly id: string;
  readonly status: PayoutStatus;
  readonly attention: Attention | null;
  /** Whether the step has written an event that some endpoint subscribes to. */
  readonly hasPendingDeliveries: boolean;
  /** Whether the inbox holds events that were not applied. */
  readonly hasUnprocessedEvents: boolean;
  readonly settleInMs: number;
  /** ISO 8601; null before the payout is accepted. */
  readonly settleBy: string | null;
  /** Text for people: "1,250.00 USD to 1,146.03 EUR". */
  readonly order: string;
  readonly accountId: string;
  readonly isAccepted: boolean;
  readonly isSubmitted: boolean;
};

/** Builds a snapshot from a row. */
export function snapshotOf(
  row: PayoutRow & Partial<Pick<LockedPayout, 'hasUnprocessedEvents' | 'settleInMs'>>,
): PayoutSnapshot {
  const { attentionReason: reason, attentionDetail: detail } = row;
  const { settleBy, isAccepted, isSubmitted } = standingOf(row);
  return {
    id: row.id,
    status: row.status,
    attention: reason === null ? null : { reason, detail: detail ?? '' },
    hasPendingDeliveries: false,
    hasUnprocessedEvents: row.hasUnprocessedEvents ?? false,
    settleInMs: Number(row.settleInMs ?? 0n),
    ...{ settleBy, isAccepted, isSubmitted },
    order: orderText(row),
    accountId: row.accountId,
  };
}

/** Parks the locked payouts for which `found` returns a reason. The others stay as they are. */
export async function park(
  sql: Sql,
  snapshots: readonly PayoutSnapshot[],
  found: (snapshot: PayoutSnapshot) => Attention | null | undefined,
): Promise<readonly PayoutSnapshot[]> {
  const parked = snapshots.flatMap((snapshot) => {
    const added = found(snapshot);
    return added ? [{ id: snapshot.id, ...withAttention(snapshot.attention, added) }] : [];
  });
  await parkPayouts(sql, parked);
  const attentionOf = new Map(parked.map(({ id, reason, detail }) => [id, { reason, detail }]));
  return snapshots.map((snapshot) => ({
    ...snapshot,
    attention: attentionOf.get(snapshot.id) ?? snapshot.attention,
  }));
}

/** Adds to an entry the payout and the account that it belongs to. */
export function owned(row: PayoutRow, entry: OwnedEntry['entry']): OwnedEntry {
  return { entry, mode: row.mode, accountId: row.accountId, payoutId: row.id };
}
