import { batchObject } from '../contract/batchObjects.js';
import { type BatchRow, completeBatches, countItems } from '../db/batches.js';
import type { Sql } from '../db/client.js';
import { type NewEvent, recordWebhookEvents } from '../db/events.js';
import type { PayoutRow } from '../db/payouts.js';
import { isFinal } from '../domain/payout.js';
import { countMoves } from './countMoves.js';

/**
 * Writes the events of payouts that have moved, and of the batches that this completes. Returns the
 * payouts whose own event, or that of their batch, has deliveries. Call it last in a transaction,
 * because it locks batches and then the accounts' event sequences.
 */
export async function announce(
  sql: Sql,
  moved: readonly PayoutRow[],
): Promise<ReadonlySet<string>> {
  countMoves(sql, moved);
  const events = [...moved.map(eventOf), ...(await completions(sql, moved))];
  const subscribed = await recordWebhookEvents(sql, events);
  const isSubscribed = ({ id, batchId }: PayoutRow) =>
    subscribed.has(id) || (batchId !== null && subscribed.has(batchId));
  return new Set(moved.filter(isSubscribed).map(({ id }) => id));
}

function eventOf(row: PayoutRow): NewEvent {
  const { id, accountId, status, statusReason, settledAt, returnedMinor } = row;
  if (status === 'pending' || status === 'processing') {
    throw new Error(`There is no event for the status ${status}.`);
  }
  const facts = {
    status,
    statusReason,
    settledAt: settledAt?.toISOString() ?? null,
    returnedMinor: returnedMinor?.toString() ?? null,
  };
  return { accountId, type: `payout.${status}`, subjectId: id, facts };
}

/** Events of the batches completed by these moves, delivered together with the events of the items. */
async function completions(sql: Sql, moved: readonly PayoutRow[]): Promise<readonly NewEvent[]> {
  const closed = moved.flatMap((row) =>
    row.batchId !== null && closesItem(row) ? [row.batchId] : [],
  );
  const batches = await completeBatches(sql, closed);
  return Promise.all(batches.map((batch) => completionOf(sql, batch)));
}

/** Writes the event of a completed batch. */
export async function announceCompletion(sql: Sql, batch: BatchRow): Promise<void> {
  await recordWebhookEvents(sql, [await completionOf(sql, batch)]);
}

async function completionOf(sql: Sql, batch: BatchRow): Promise<NewEvent> {
  const facts = batchObject(batch, await countItems(sql, batch.id));
  return { accountId: batch.accountId, type: 'batch.completed', subjectId: batch.id, facts };
}

/** Whether the last move made the item final. A return after a settlement does not: it was final before. */
function closesItem({ status, settledSince }: PayoutRow): boolean {
  return isFinal(status) && (status === 'settled' || settledSince === null);
}
