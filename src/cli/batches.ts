import type { Client } from '@temporalio/client';
import {
  type BatchRow,
  countItems,
  findBatchById,
  listOpenBatches,
  pauseBatch,
  resumeBatch,
} from '../db/batches.js';
import { chunksOf } from '../db/chunks.js';
import { type Database, transaction } from '../db/client.js';
import { recordCommand } from '../db/operatorActions.js';
import type { Signature } from '../domain/operator.js';
import { payoutStatuses } from '../domain/payout.js';
import { wakeChunks } from '../temporal/wakePayout.js';
import { UsageError } from './usage.js';

/** Every batch that is under way, oldest first. */
export async function listBatches(database: Database): Promise<void> {
  const batches = await listOpenBatches(database);
  if (batches.length === 0) console.log('No batch is under way.');
  for (const batch of batches) console.log(summaryOf(batch));
}

/** One batch with its counters. */
export async function showBatch(database: Database, id: string): Promise<void> {
  const batch = await existingBatch(database, id);
  console.log(summaryOf(batch));
  const items = await countItems(database, id);
  for (const status of payoutStatuses) {
    const counts = items.filter((item) => item.status === status).map((item) => item.count);
    const count = counts.reduce((sum, next) => sum + next, 0);
    if (count > 0) console.log(`  ${String(count).padStart(6)}  ${status}`);
  }
}

/** Withholds what the rail has not been given: what it has goes on. False when it is over. */
export async function pause(
  database: Database,
  id: string,
  signature: Signature,
): Promise<boolean> {
  const batch = await existingBatch(database, id);
  const command = { kind: 'batches pause' };
  if (!(await changed(database, id, pauseBatch, { signature, command }))) {
    console.log(`refused: The batch is ${batch.status}.`);
    return false;
  }
  console.log('paused: Nothing more is given to the rail until the batch is resumed.');
  return true;
}

/** Lets a paused batch go on at once. False when it was not paused. */
export async function resume(
  database: Database,
  temporal: Client,
  id: string,
  signature: Signature,
): Promise<boolean> {
  await existingBatch(database, id);
  const command = { kind: 'batches resume' };
  if (!(await changed(database, id, resumeBatch, { signature, command }))) {
    console.log('refused: The batch is not paused.');
    return false;
  }
  const failures = await wakeChunks(temporal, await chunksOf(database, id));
  const late = failures.length === 0 ? '' : ` ${failures.length} of its chunks follow later.`;
  console.log(`resumed: The batch goes on.${late}`);
  return true;
}

/** Changes a batch, and says who has in the same transaction. */
function changed(
  database: Database,
  id: string,
  change: typeof pauseBatch,
  { signature, command }: { readonly signature: Signature; readonly command: { kind: string } },
): Promise<boolean> {
  return transaction(database, async (sql) => {
    if (!(await change(sql, id))) return false;
    await recordCommand(sql, signature, id, command);
    return true;
  });
}

function summaryOf({ id, accountId, status, total, open, pausedAt, createdAt }: BatchRow): string {
  const state = status === 'processing' && pausedAt !== null ? 'paused' : status;
  return `${id}  ${state}  ${total - open} of ${total} final  ${accountId}  since ${createdAt.toISOString()}`;
}

async function existingBatch(database: Database, id: string): Promise<BatchRow> {
  const batch = await findBatchById(database, id);
  if (batch === undefined) throw new UsageError(`There is no batch ${id}.`);
  return batch;
}
