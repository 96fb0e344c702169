import {
  type BatchRow,
  countItems,
  findBatchById,
  listOpenBatches,
  pauseBatch,
  resumeBatch,
} from '../db/batches.js';
import { chunksOf } from '../db/chunks.js';
import { transaction } from '../db/client.js';
import { recordCommand } from '../db/operatorActions.js';
import { payoutStatuses } from '../domain/payout.js';
import { wakeChunks } from '../temporal/workflowCalls.js';
import { type Call, existing, requiredId, signatureOf } from './usage.js';

/** Every batch that is under way, oldest first. */
export async function listBatches({ database }: Call): Promise<void> {
  const batches = await listOpenBatches(database);
  if (batches.length === 0) console.log('No batch is under way.');
  for (const batch of batches) console.log(summaryOf(batch));
}

/** One batch with its counters. */
export async function showBatch(call: Call): Promise<void> {
  const id = requiredId('batch', call);
  const batch = existing('batch', id, await findBatchById(call.database, id));
  console.log(summaryOf(batch));
  const items = await countItems(call.database, batch.id);
  for (const status of payoutStatuses) {
    const counts = items.filter((item) => item.status === status).map((item) => item.count);
    const count = counts.reduce((sum, next) => sum + next, 0);
    if (count > 0) console.log(`  ${String(count).padStart(6)}  ${status}`);
  }
}

/** Withholds what the rail has not been given: what it has goes on. False when it is over. */
export async function pause(call: Call): Promise<boolean> {
  const { batch, isChanged } = await changeBatch(signedCall(call), 'pause', pauseBatch);
  console.log(
    isChanged
      ? 'paused: Nothing more is given to the rail until the batch is resumed.'
      : `refused: The batch is ${batch.status}.`,
  );
  return isChanged;
}

/** Lets a paused batch go on at once. False when it was not paused. */
export async function resume(call: Call): Promise<boolean> {
  const signed = signedCall(call);
  return call.withTemporal(async (temporal) => {
    const { batch, isChanged } = await changeBatch(signed, 'resume', resumeBatch);
    if (!isChanged) {
      console.log('refused: The batch is not paused.');
      return false;
    }
    const failures = await wakeChunks(temporal, await chunksOf(call.database, batch.id));
    const late = failures.length === 0 ? '' : ` ${failures.length} of its chunks follow later.`;
    console.log(`resumed: The batch goes on.${late}`);
    return true;
  });
}

function signedCall(call: Call) {
  return { ...call, id: requiredId('batch', call), signature: signatureOf(call) };
}

/** Changes a batch, and says who has in the same transaction. */
async function changeBatch(
  { database, id, signature }: ReturnType<typeof signedCall>,
  verb: string,
  change: typeof pauseBatch,
) {
  const batch = existing('batch', id, await findBatchById(database, id));
  const isChanged = await transaction(database, async (sql) => {
    if (!(await change(sql, id))) return false;
    await recordCommand(sql, signature, id, { kind: `batches ${verb}` });
    return true;
  });
  return { batch, isChanged };
}

function summaryOf({ id, accountId, status, total, open, pausedAt, createdAt }: BatchRow): string {
  const state = status === 'processing' && pausedAt !== null ? 'paused' : status;
  return `${id}  ${state}  ${total - open} of ${total} final  ${accountId}  since ${createdAt.toISOString()}`;
}
