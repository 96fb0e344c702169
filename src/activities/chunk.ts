import { setTimeout } from 'node:timers/promises';
import {
  countChunk,
  handOverItems,
  itemsOf,
  itemsWithUnprocessedEvents,
  leaseChunk,
  releaseChunk,
} from '../db/chunks.js';
import { bulkTransaction, type Database, isOutage, type Sql, transaction } from '../db/client.js';
import { type LockedPayout, readPayouts } from '../db/payouts.js';
import { type Chunk, type ChunkCounts, chunkDriver, groupsOf, isOpen } from '../domain/batch.js';
import type { PayoutFact } from '../domain/payout.js';
import { wakePayouts } from '../temporal/workflowCalls.js';
import { applyFacts } from './applyFacts.js';
import type { Announcement, RailDeps, WakingDeps } from './deps.js';
import { failAfterAttempts, longStep, withHeartbeat } from './failure.js';
import { factFromLookup, lookUp } from './lookup.js';
import { groupByRail, submitAll } from './rail.js';
import type { PayoutSnapshot } from './snapshot.js';

type ChunkDeps = RailDeps & WakingDeps;

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

/** The activities of a chunk: the same steps as those of a single payout, for hundreds at once. */
export function chunkActivities(deps: ChunkDeps) {
  const { database, temporal, deliverer } = deps;
  return {
    /** Submits what the rail does not have, and looks up what it has not answered. */
    submitChunk: (chunk: Chunk): Promise<ChunkCounts> =>
      withHeartbeat(async () => {
        await leaseChunk(database, chunk, leaseMs);
        const driver = chunkDriver(chunk);
        for (const ids of groupsOf(await itemsOf(database, chunk, ['processing']))) {
          const submitted = await submitAll(deps, { driver, ids, wakeInMs: leaseMs });
          deliverer.begin(submitted.snapshots);
        }
        return countChunk(database, chunk);
      }),

    /**
     * Applies what the inbox holds about the chunk, one transaction at a time, and waits for
     * more while answers of the rail are pending, for at most five seconds.
     */
    applyChunkEvents: (chunk: Chunk): Promise<ChunkCounts> =>
      longStep(() => applyUntilQuiet(deps, chunk)),

    /** Asks the rail about everything it has taken and not reported. */
    pollChunk: (chunk: Chunk): Promise<ChunkCounts> =>
      withHeartbeat(async () => {
        await leaseChunk(database, chunk, leaseMs);
        const ids = await itemsOf(database, chunk, ['sent']);
        const rows = await readPayouts(database, chunkDriver(chunk), ids);
        const facts = await factsOf(deps, rows);
        await failAfterAttempts(applyInGroups(deps, chunk, [...facts.keys()], facts));
        return countChunk(database, chunk);
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
    handOverChunk: ({ scope, ...chunk }: HandOverInput): Promise<ChunkCounts> =>
      withHeartbeat(async () => {
        const handed = await handOverItems(database, chunk, scope);
        // What could not be woken is due for the sweep.
        await wakePayouts(temporal, handed);
        return countChunk(database, chunk);
      }),
  };
}

/**
 * Does the work for a group of payouts at a time, each in a transaction of its own, whose events are
 * delivered while the next group is worked on. What fails is done again one by one, so that a bug that
 * one payout brings to light holds up no other; it is thrown in the end.
 */
export async function inGroups<T extends Announcement>(
  { database, deliverer }: Pick<ChunkDeps, 'database' | 'deliverer'>,
  ids: readonly string[],
  work: (sql: Sql, ids: readonly string[]) => Promise<readonly T[]>,
): Promise<readonly T[]> {
  const results: T[] = [];
  const failures: unknown[] = [];
  const workOn = async (group: readonly string[]): Promise<void> => {
    try {
      const done = await bulkTransaction(database, group.length, (sql) => work(sql, group));
      deliverer.begin(done);
      results.push(...done);
    } catch (error) {
      // That the database is away or busy has nothing to do with one of them.
      if (isOutage(error)) throw error;
      if (group.length === 1) failures.push(error);
      else for (const id of group) await workOn([id]);
    }
  };
  for (const group of groupsOf(ids)) await workOn(group);
  if (failures.length > 0) throw failures[0];
  return results;
}

async function applyUntilQuiet(deps: ChunkDeps, chunk: Chunk): Promise<ChunkCounts> {
  const { database } = deps;
  const startedMs = performance.now();
  let pauseMs = firstPauseMs;
  await leaseChunk(database, chunk, leaseMs);
  for (;;) {
    const ids = await itemsWithUnprocessedEvents(database, chunk);
    if (ids.length > 0) {
      await applyInGroups(deps, chunk, ids);
      pauseMs = firstPauseMs;
    }
    const counts = await countChunk(database, chunk);
    if (counts.sent + counts.unanswered === 0) {
      if (isOpen(counts) || (await releaseIfDone(database, chunk, counts))) return counts;
    } else if (performance.now() - startedMs >= lookLimitMs) {
      return counts;
    }
    await setTimeout(pauseMs);
    pauseMs = Math.min(pauseMs * 2, longestPauseMs);
  }
}

/** Applies facts and what the inbox holds of payouts. */
function applyInGroups(
  deps: ChunkDeps,
  chunk: Chunk,
  ids: readonly string[],
  facts?: ReadonlyMap<string, PayoutFact>,
): Promise<readonly PayoutSnapshot[]> {
  return inGroups(deps, ids, (sql, group) =>
    applyFacts(sql, deps.factRules, { driver: chunkDriver(chunk), ids: group }, facts),
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
