import { setTimeout } from 'node:timers/promises';
import {
  countChunk,
  handOverItems,
  itemsOf,
  itemsWithUnprocessedEvents,
  leaseChunk,
  releaseChunk,
} from '../db/chunks.js';
import { bulkTransaction, type Database, type Sql, transaction } from '../db/client.js';
import { type LockedPayout, lockPayouts } from '../db/payouts.js';
import { type Chunk, type ChunkCounts, chunkDriver, groupsOf, isOpen } from '../domain/batch.js';
import type { PayoutFact } from '../domain/payout.js';
import { wakePayouts } from '../temporal/wakePayout.js';
import { applyFacts } from './applyFacts.js';
import type { Announced } from './cancellation.js';
import type { RailDeps, WakingDeps } from './deps.js';
import { failAfterAttempts, isActivityRetry, longStep, withHeartbeat } from './failure.js';
import { factFromLookup, lookUp } from './lookup.js';
import { groupByRail, submitAll } from './rail.js';
import type { PayoutSnapshot } from './snapshot.js';

type ChunkDeps = RailDeps & WakingDeps;

/** The counts of a chunk after a step, and whether the step has left events to deliver. */
export type ChunkProgress = ChunkCounts & { readonly hasPendingDeliveries: boolean };

export type HandOverInput = Chunk & {
  /** Beside what waits for a person: what had no answer for ten minutes, or all that is open. */
  readonly scope: 'stuck' | 'unanswered' | 'all';
};
export type SuspendInput = Chunk & { readonly forMs: number };

/** Longer than any step of a chunk, with its retries after a killed worker. */
const leaseMs = 60_000;

/** How long one run watches the inbox; a timer of the workflow could not be as fine. */
const lookLimitMs = 5_000;

/** Between two looks into the inbox; doubled while there is nothing, to spare the database. */
const firstPauseMs = 50;
const longestPauseMs = 400;

/** Events are gathered this long and delivered together, unless everything is there before. */
const gatherMs = 1_000;

/** The activities of a chunk: the same steps as those of a single payout, for hundreds at once. */
export function chunkActivities(deps: ChunkDeps) {
  const { database, temporal } = deps;
  return {
    /** Submits what the rail does not have, and looks up what it has not answered. */
    submitChunk: (chunk: Chunk): Promise<ChunkProgress> =>
      withHeartbeat(async () => {
        await leaseChunk(database, chunk, leaseMs);
        const snapshots: PayoutSnapshot[] = [];
        const driver = chunkDriver(chunk);
        for (const ids of groupsOf(await itemsOf(database, chunk, ['processing']))) {
          snapshots.push(...(await submitAll(deps, { driver, ids, wakeInMs: leaseMs })).snapshots);
        }
        return readProgress(database, chunk, snapshots);
      }),

    /**
     * Applies what the inbox holds about the chunk, one transaction at a time, and waits for
     * more while answers of the rail are pending, for at most five seconds.
     */
    applyChunkEvents: (chunk: Chunk): Promise<ChunkProgress> => longStep(() => settle(deps, chunk)),

    /** Asks the rail about everything it has taken and not reported. */
    pollChunk: (chunk: Chunk): Promise<ChunkProgress> =>
      withHeartbeat(async () => {
        await leaseChunk(database, chunk, leaseMs);
        const ids = await itemsOf(database, chunk, ['sent']);
        const rows = await lockPayouts(database, chunkDriver(chunk), ids);
        const facts = await factsOf(deps, rows);
        const applying = applyInGroups(deps, chunk, [...facts.keys()], facts);
        const snapshots = await failAfterAttempts(applying);
        return readProgress(database, chunk, snapshots);
      }),

    /** Suspends the chunk until an event comes or its time is over; false when one is there already. */
    suspendChunk: ({ forMs, ...chunk }: SuspendInput): Promise<boolean> =>
      withHeartbeat(() =>
        transaction(database, async (sql) => {
          await releaseChunk(sql, chunk, forMs + leaseMs);
          return (await itemsWithUnprocessedEvents(sql, chunk)).length === 0;
        }),
      ),

    /** Hands payouts that need an operator over to workflows of their own. */
    handOverChunk: ({ scope, ...chunk }: HandOverInput): Promise<ChunkProgress> =>
      withHeartbeat(async () => {
        const handed = await handOverItems(database, chunk, scope);
        // What could not be woken is due for the sweep.
        await wakePayouts(temporal, handed);
        return readProgress(database, chunk, []);
      }),
  };
}

export async function readProgress(
  database: Database,
  chunk: Chunk,
  moved: readonly Announced[],
): Promise<ChunkProgress> {
  const counts = await countChunk(database, chunk);
  return { ...counts, hasPendingDeliveries: hasAnyPendingDeliveries(moved) };
}

/** Whether there may be events to deliver; an earlier attempt that died may have written some. */
export function hasAnyPendingDeliveries(moved: readonly Announced[]): boolean {
  return isActivityRetry() || moved.some(({ hasPendingDeliveries }) => hasPendingDeliveries);
}

/** Does the work for a group of payouts at a time, each in a transaction of its own. */
export async function inGroups<T>(
  database: Database,
  ids: readonly string[],
  work: (sql: Sql, ids: readonly string[]) => Promise<readonly T[]>,
): Promise<readonly T[]> {
  const results: T[] = [];
  for (const group of groupsOf(ids)) {
    results.push(...(await bulkTransaction(database, group.length, (sql) => work(sql, group))));
  }
  return results;
}

async function settle(deps: ChunkDeps, chunk: Chunk): Promise<ChunkProgress> {
  const { database } = deps;
  const startedMs = performance.now();
  let hasPendingDeliveries = isActivityRetry();
  let pauseMs = firstPauseMs;
  await leaseChunk(database, chunk, leaseMs);
  for (;;) {
    const ids = await itemsWithUnprocessedEvents(database, chunk);
    if (ids.length > 0) {
      const moved = await applyInGroups(deps, chunk, ids);
      hasPendingDeliveries ||= moved.some((payout) => payout.hasPendingDeliveries);
      pauseMs = firstPauseMs;
    }
    const counts = await countChunk(database, chunk);
    const lookedMs = performance.now() - startedMs;
    const isEnough = lookedMs >= (hasPendingDeliveries ? gatherMs : lookLimitMs);
    if (counts.sent + counts.unanswered === 0) {
      if (isOpen(counts) || (await releaseIfDone(database, chunk, counts))) {
        return { ...counts, hasPendingDeliveries };
      }
    } else if (isEnough) {
      return { ...counts, hasPendingDeliveries };
    }
    await setTimeout(pauseMs);
    pauseMs = Math.min(pauseMs * 2, longestPauseMs);
  }
}

/** Applies facts and what the inbox holds of payouts. */
function applyInGroups(
  { database, factRules }: ChunkDeps,
  chunk: Chunk,
  ids: readonly string[],
  facts?: ReadonlyMap<string, PayoutFact>,
): Promise<readonly PayoutSnapshot[]> {
  return inGroups(database, ids, (sql, group) =>
    applyFacts(sql, factRules, { driver: chunkDriver(chunk), ids: group }, facts),
  );
}

/** Releases a chunk that has nothing to do; false when an event has come in meanwhile. */
async function releaseIfDone(
  database: Database,
  chunk: Chunk,
  { pending }: ChunkCounts,
): Promise<boolean> {
  return transaction(database, async (sql) => {
    // What is not decided yet is the batch's own; should that have died, the sweep wakes it.
    await releaseChunk(sql, chunk, pending > 0 ? leaseMs : null);
    const isLeft = (await itemsWithUnprocessedEvents(sql, chunk)).length === 0;
    if (!isLeft) await leaseChunk(sql, chunk, leaseMs);
    return isLeft;
  });
}

/** What the rails report about payouts beyond that they have accepted them. */
async function factsOf(
  { rails }: Pick<RailDeps, 'rails'>,
  rows: readonly LockedPayout[],
): Promise<ReadonlyMap<string, PayoutFact>> {
  const facts = new Map<string, PayoutFact>();
  for (const [rail, group] of groupByRail(rails, rows)) {
    const { answers } = await lookUp(rail, group);
    for (const { id } of group) {
      const fact = factFromLookup(answers.get(id));
      if (fact !== undefined && fact.kind !== 'accepted') facts.set(id, fact);
    }
  }
  return facts;
}
