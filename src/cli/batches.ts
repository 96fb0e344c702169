import {
  type BatchRow,
  countItems,
  findBatchById,
  listOpenBatches,
  pauseBatch,
  progressOfBatch,
  resumeBatch,
} from '../db/batches.js';
import { chunksOf } from '../db/chunks.js';
import { mostListed, transaction } from '../db/client.js';
import { recordCommand } from '../db/operatorActions.js';
import { payoutStatuses } from '../domain/payout.js';
import { attemptsOf } from './showPayout.js';
import { printJson, printRows } from './table.js';
import { type Call, existing, requiredId, signatureOf } from './usage.js';

/** Lists the batches that are in progress, oldest first. */
export async function listBatches(call: Call): Promise<void> {
  const rows = await listOpenBatches(call.database);
  printRows({ ...call, most: mostListed }, rows, 'No batch is in progress.', summaryOf);
}

/** Shows a batch with its counters, the steps in progress and the items that wait for an operator. */
export async function showBatch(call: Call): Promise<void> {
  const id = requiredId('batch', call);
  const batch = existing('batch', id, await findBatchById(call.database, id));
  const [items, progress, attempts] = await Promise.all([
    countItems(call.database, id),
    progressOfBatch(call.database, id),
    batch.status === 'processing' ? attemptsOf(call, id) : [],
  ]);
  const waiting = progress.flatMap(({ parked }) => parked);
  if (call.isJson) return printJson({ ...batch, items, waiting, attempts });
  console.log(summaryOf(batch));
  for (const status of payoutStatuses) {
    const count = items.reduce((sum, item) => sum + (item.status === status ? item.count : 0), 0);
    if (count > 0) console.log(`  ${String(count).padStart(6)}  ${status}`);
  }
  for (const attempt of attempts) console.log(`  ${attempt}`);
  if (waiting.length > 0) console.log('Waiting for an operator, at most ten of each status:');
  for (const item of waiting) console.log(`  corridor payouts show ${item}`);
}

/** Stops submitting a batch's items; submitted ones continue. False if the batch is no longer in progress. */
export async function pause(call: Call): Promise<boolean> {
  const { batch, isChanged } = await changeBatch(call, 'pause', pauseBatch);
  console.log(
    isChanged
      ? 'paused: No more payouts are sent to the rail until the batch is resumed.'
      : `refused: The batch is ${batch.status}.`,
  );
  return isChanged;
}

/** Resumes a paused batch at once. False if it was not paused. */
export async function resume(call: Call): Promise<boolean> {
  const { batch, isChanged } = await changeBatch(call, 'resume', resumeBatch);
  console.log(isChanged ? 'resumed: The batch continues.' : 'refused: The batch is not paused.');
  if (!isChanged) return false;
  // Even if Temporal does not answer: the chunks are due, so the sweep wakes them within seconds.
  const chunks = await chunksOf(call.database, batch.id);
  const { wakeChunks } = await import('../temporal/workflowCalls.js');
  await call.withTemporal((temporal) => wakeChunks(temporal, chunks));
  return true;
}

/** Changes a batch and records the command in the same transaction. */
async function changeBatch(call: Call, verb: string, change: typeof pauseBatch) {
  const [id, signature] = [requiredId('batch', call), signatureOf(call)];
  const batch = existing('batch', id, await findBatchById(call.database, id));
  const isChanged = await transaction(call.database, async (sql) => {
    if (!(await change(sql, id))) return false;
    await recordCommand(sql, signature, id, { kind: `batches ${verb}` });
    return true;
  });
  return { batch, isChanged };
}

function summaryOf({ id, accountId, status, total, open, pausedAt, createdAt }: BatchRow): string {
  const state = status === 'processing' && pausedAt !== null ? 'paused' : status;
  const progress = `${id}  ${state}  ${total - open} of ${total} final`;
  return `${progress}\n  ${accountId}, since ${createdAt.toISOString()}`;
}
