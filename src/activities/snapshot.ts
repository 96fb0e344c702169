import type { Sql } from '../db/client.js';
import type { OwnedEntry } from '../db/ledger.js';
import { type LockedPayout, type PayoutRow, parkPayouts } from '../db/payouts.js';
import { type CommandState, commandStateOf, orderText } from '../domain/commandRules.js';
import { type Attention, withAttention } from '../domain/payout.js';

/** The state of a payout after a step, as needed by its workflow and the deliverer of its events. */
export type PayoutSnapshot = Omit<CommandState, 'attentionReason'> & {
  readonly attention: Attention | null;
  /** Whether the step has written an event that some endpoint subscribes to. */
  readonly hasPendingDeliveries: boolean;
  /** Whether the inbox holds events that were not applied. */
  readonly hasUnprocessedEvents: boolean;
  readonly settleInMs: number;
  /** Text for people: "1,250.00 USD to 1,146.03 EUR". */
  readonly order: string;
  readonly accountId: string;
};

/** Builds a snapshot from a row. */
export function snapshotOf(
  row: PayoutRow & Partial<Pick<LockedPayout, 'hasUnprocessedEvents' | 'settleInMs'>>,
): PayoutSnapshot {
  const { attentionReason: reason, statusReason, ...state } = commandStateOf(row);
  return {
    ...state,
    // No text of a bank enters a history.
    ...(statusReason === 'corrected' && { statusReason }),
    attention: reason === null ? null : { reason, detail: row.attentionDetail ?? '' },
    hasPendingDeliveries: false,
    hasUnprocessedEvents: row.hasUnprocessedEvents ?? false,
    settleInMs: Number(row.settleInMs ?? 0n),
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
