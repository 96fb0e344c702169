import { batchObject } from '../contract/batchObjects.js';
import { payoutObject } from '../contract/objects.js';
import { type BatchRow, closeItems, countItems } from '../db/batches.js';
import type { Sql } from '../db/client.js';
import { type NewEvent, recordEvents } from '../db/events.js';
import type { PayoutRow } from '../db/payouts.js';
import { isFinal, type PayoutStatus } from '../domain/payout.js';

/**
 * Writes the events of payouts that have moved, and of the batches that are complete by it.
 * Returns the payouts that somebody is listening to. It locks batches and then the numbers
 * of the accounts, so it comes last in its transaction.
 */
export async function announce(
  sql: Sql,
  moved: readonly PayoutRow[],
): Promise<ReadonlySet<string>> {
  return recordEvents(sql, [...moved.map(eventOf), ...(await completions(sql, moved))]);
}

function eventOf(row: PayoutRow): NewEvent {
  return {
    accountId: row.accountId,
    type: `payout.${eventStatus(row.status)}`,
    payoutId: row.id,
    data: payoutObject(row),
  };
}

function eventStatus(status: PayoutStatus) {
  if (status === 'pending' || status === 'processing') {
    throw new Error(`There is no event for the status ${status}.`);
  }
  return status;
}

/** A batch's event belongs to the item that completes it, whose driver delivers it. */
async function completions(sql: Sql, moved: readonly PayoutRow[]): Promise<readonly NewEvent[]> {
  const closed = new Map<string, string>();
  const batchIds: string[] = [];
  for (const row of moved) {
    if (row.batchId === null || !closesItem(row)) continue;
    batchIds.push(row.batchId);
    closed.set(row.batchId, row.id);
  }
  const events: NewEvent[] = [];
  for (const batch of await closeItems(sql, batchIds)) {
    events.push(await completionOf(sql, batch, closed.get(batch.id) ?? null));
  }
  return events;
}

/** Writes the event of a batch that is complete; it is delivered with those of the payout. */
export async function announceCompletion(
  sql: Sql,
  batch: BatchRow,
  payoutId: string | null,
): Promise<void> {
  await recordEvents(sql, [await completionOf(sql, batch, payoutId)]);
}

async function completionOf(sql: Sql, batch: BatchRow, payoutId: string | null): Promise<NewEvent> {
  const data = batchObject(batch, await countItems(sql, batch.id));
  return { accountId: batch.accountId, type: 'batch.completed', payoutId, data };
}

/** Whether its last move made the item final: a return after a settlement does not again. */
function closesItem({ status, statusHistory }: PayoutRow): boolean {
  const previous = statusHistory.at(-2)?.status ?? 'pending';
  return isFinal(status) && !isFinal(previous);
}
