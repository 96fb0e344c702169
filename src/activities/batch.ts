import {
  type BatchCount,
  type BatchProgress,
  type BatchRow,
  closeEmptyBatch,
  completeBatches,
  countItems,
  findBatchById,
  progressOfBatch,
  recordOutcome,
  statusesOfItems,
} from '../db/batches.js';
import { countChunk, itemsOf } from '../db/chunks.js';
import { bulkTransaction, type Sql, transaction } from '../db/client.js';
import { makeDue, type RefusedPayout, refusePayouts } from '../db/payouts.js';
import {
  type BatchMode,
  type Chunk,
  type ChunkCounts,
  chunkCountOf,
  chunkDriver,
  maximumBatchItems,
} from '../domain/batch.js';
import { writtenSum } from '../domain/money.js';
import type { WakeablePayout } from '../domain/payout.js';
import { refuse } from '../domain/refusal.js';
import type { BatchInput } from '../workflows/messages.js';
import { accept, acceptTogether } from './acceptance.js';
import { announceCompletion } from './announce.js';
import { cancelItems } from './cancellation.js';
import { inGroups } from './chunk.js';
import { countMoves } from './countMoves.js';
import type {
  AcceptanceDeps,
  ActivityDeps,
  Announcement,
  DelivererDeps,
  WakingDeps,
} from './deps.js';
import { longStep, withHeartbeat } from './failure.js';
import { wakeOwn } from './waking.js';

type BatchDeps = AcceptanceDeps & WakingDeps & DelivererDeps & Pick<ActivityDeps, 'factRules'>;
export type AcceptChunkInput = Chunk & { readonly workflowAgeMs: number };
export type DecideBatchInput = { readonly batchId: string; readonly workflowAgeMs: number };

/** The parts of a batch's state that its workflow needs. */
export type BatchPlan = {
  readonly chunks: number;
  readonly mode: BatchMode;
  readonly isOver: boolean;
  /** Whether the batch's workflow still has items to decide. */
  readonly isUndecided: boolean;
  /** Text for operators, such as "… completed: 9,998 settled, 2 failed. …". */
  readonly progress: string;
};

/** The activities of a batch: decisions on the batch as a whole, or on its items in order. */
export function batchActivities(deps: BatchDeps) {
  const { database, deliverer } = deps;
  return {
    readBatch: ({ batchId }: BatchInput): Promise<BatchPlan> =>
      withHeartbeat(async () => {
        const batch = await existingBatch(database, batchId);
        const items = await progressOfBatch(database, batchId);
        const sums = await countItems(database, batchId);
        return {
          chunks: chunkCountOf(batch.total),
          mode: batch.mode,
          isOver: batch.status !== 'processing',
          isUndecided: items.some(({ undecided }) => undecided > 0),
          progress: `${progressText(batch, items)}. ${sumsText(sums)}`,
        };
      }),

    /** Debits all items of an all-or-nothing batch or refuses all. Retries a bug: no item can be parked. */
    decideBatch: ({ batchId, workflowAgeMs }: DecideBatchInput): Promise<void> =>
      withHeartbeat(() => decideTogether(deps, { batchId, workflowAgeMs, isRepeated: false })),

    /**
     * Decides the pending items of a chunk in order and debits those it accepts. If the batch has
     * been canceled meanwhile, cancels them instead.
     */
    acceptChunk: ({ workflowAgeMs, ...chunk }: AcceptChunkInput): Promise<ChunkCounts> =>
      longStep(async () => {
        let batch = await existingBatch(database, chunk.batchId);
        // The workflow has had it decided, but the database has lost that, and the bank may have its orders.
        if (batch.outcome === null) {
          await decideTogether(deps, { ...chunk, workflowAgeMs, isRepeated: true });
          batch = await existingBatch(database, chunk.batchId);
        }
        const { canceledAt } = batch;
        const pending = await itemsOf(database, chunk, ['pending']);
        await inGroups<Announcement>(deps, pending, (sql, ids) =>
          canceledAt === null
            ? accept(sql, deps, { driver: chunkDriver(chunk), ids, workflowAgeMs })
            : cancelItems(sql, deps.factRules, ids),
        );
        return countChunk(database, chunk);
      }),

    /**
     * Cancels the items not yet submitted to the rail, whichever workflow drives them. Has no effect if the API has
     * not recorded a cancellation, because anyone who can reach Temporal can send the same update.
     */
    cancelChunk: (chunk: Chunk): Promise<void> =>
      longStep(async () => {
        if ((await existingBatch(database, chunk.batchId)).canceledAt === null) return;
        const unsent = await itemsOf(database, chunk, ['pending', 'processing'], null);
        const canceled = await inGroups(deps, unsent, (sql, ids) =>
          cancelItems(sql, deps.factRules, ids),
        );
        const own = canceled.flatMap((item) => item.own ?? []);
        await wakeOwn(deps, own);
      }),

    /** Completes a batch whose items all refer to existing payouts. */
    closeEmptyBatch: ({ batchId }: BatchInput): Promise<void> =>
      withHeartbeat(async () => {
        const hasPendingDeliveries = await transaction(database, async (sql) => {
          const closed = await closeEmptyBatch(sql, batchId);
          if (closed !== undefined) await announceCompletion(sql, closed);
          return closed !== undefined;
        });
        deliverer.begin([{ id: batchId, hasPendingDeliveries }]);
      }),
  };
}

/** Returns the accepted sum of each corridor: "Accepted: 4,820.00 USD to EUR". */
function sumsText(counts: readonly BatchCount[]): string {
  const sums = new Map<string, bigint>();
  for (const { sourceCurrency: source, destinationCurrency, sourceMinor } of counts) {
    if (source === null || destinationCurrency === null || sourceMinor === 0n) continue;
    const corridor = `${source} to ${destinationCurrency}`;
    sums.set(corridor, (sums.get(corridor) ?? 0n) + sourceMinor);
  }
  const texts = [...sums].map(([corridor, minor]) => {
    return `${writtenSum(minor, corridor.slice(0, 3))}${corridor.slice(3)}`;
  });
  return `Accepted: ${texts.length === 0 ? 'nothing' : texts.join(', ')}`;
}

function progressText(batch: BatchRow, items: readonly BatchProgress[]): string {
  const written = (count: number) => count.toLocaleString('en');
  const state = batch.pausedAt !== null && batch.completedAt === null ? 'paused' : batch.status;
  const counts = items.map(({ status, count }) => `${written(count)} ${status}`);
  const waiting = items.flatMap(({ parked }) => parked);
  const people = waiting.length === 0 ? '' : `. Waiting for an operator: ${waiting.join(', ')}`;
  const others = batch.total - items.reduce((sum, { count }) => sum + count, 0);
  if (others > 0) counts.push(`${written(others)} made before`);
  const size = `${written(batch.total)} payouts of account ${batch.accountId}`;
  return `${size}, ${state}: ${counts.join(', ')}${people}`;
}

async function existingBatch(sql: Sql, batchId: string): Promise<BatchRow> {
  const batch = await findBatchById(sql, batchId);
  if (batch === undefined) throw new Error(`There is no batch ${batchId}.`);
  return batch;
}

type Deciding = DecideBatchInput & {
  /** Whether it was decided before. Then it is not refused, because the bank may have paid what was accepted. */
  readonly isRepeated: boolean;
};

/** Debits all items of an all-or-nothing batch or refuses all, unless it is decided or canceled. */
async function decideTogether(deps: BatchDeps, deciding: Deciding): Promise<void> {
  const { batchId: id } = deciding;
  const { isRefused, own } = await bulkTransaction(deps.database, maximumBatchItems, (sql) =>
    decide(sql, deps, deciding),
  );
  deps.deliverer.begin([{ id, hasPendingDeliveries: isRefused }]);
  await wakeOwn(deps, own);
}

async function decide(
  sql: Sql,
  deps: AcceptanceDeps,
  { batchId, workflowAgeMs, isRepeated }: Deciding,
): Promise<{ readonly isRefused: boolean; readonly own: readonly WakeablePayout[] }> {
  const batch = await existingBatch(sql, batchId);
  if (batch.outcome !== null || batch.canceledAt !== null) {
    return { isRefused: batch.outcome === 'refused', own: [] };
  }
  const items = await statusesOfItems(sql, batchId);
  const ids = items.filter(({ status }) => status === 'pending').map(({ id }) => id);
  const { refused, own } = await acceptTogether(sql, deps, ids, workflowAgeMs);
  const isRefused = refused.length > 0;
  // It stays undecided, which alerts operators (CorridorPayoutsUndecided).
  if (isRefused && isRepeated) return { isRefused: false, own: [] };
  await recordOutcome(sql, batchId, isRefused ? 'refused' : 'accepted');
  if (isRefused) await refuseTogether(sql, batchId, ids, refused);
  const ownIds = own.map(({ id }) => id);
  await makeDue(sql, ownIds);
  return { isRefused, own };
}

/** Refuses every item: some for their own reasons, the others because of those. */
async function refuseTogether(
  sql: Sql,
  batchId: string,
  ids: readonly string[],
  refusedItems: readonly RefusedPayout[],
): Promise<void> {
  const reasonOf = new Map(refusedItems.map(({ id, refusal }) => [id, refusal]));
  const others = refuse('batch_refused', {
    detail: `${refusedItems.length} of the items of ${batchId} were refused, so no item is paid.`,
  });
  const allRefused = ids.map((id) => ({ id, refusal: reasonOf.get(id) ?? others }));
  const rows = await refusePayouts(sql, allRefused);
  countMoves(sql, rows);
  const batchOfEach = rows.map(() => batchId);
  // One event reports the end of the whole batch; 10,000 identical ones would help no one.
  for (const batch of await completeBatches(sql, batchOfEach)) await announceCompletion(sql, batch);
}
