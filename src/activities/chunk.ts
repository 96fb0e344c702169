import { setTimeout } from 'node:timers/promises';
import { Context } from '@temporalio/activity';
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
import type { PayoutFact } from '../domain/factEffect.js';
import { createKeyedLimit } from '../keyedLimit.js';
import { wakePayouts } from '../temporal/workflowCalls.js';
import { applyFacts } from './applyFacts.js';
import type { Announcement, RailDeps, WakingDeps } from './deps.js';
import { failAfterAttempts, longStep, retryLater, withHeartbeat } from './failure.js';
import { factFromLookup, lookUp } from './lookup.js';
import type { PayoutSnapshot } from './snapshot.js';
import { groupByRail, submitAll } from './submission.js';

type ChunkDeps = RailDeps & WakingDeps;

export type HandOverInput = Chunk & {
  /** Besides payouts that need an operator: those unanswered for ten minutes, or all open ones. */
  readonly scope: 'stuck' | 'unanswered' | 'all';
};
export type SuspendInput = Chunk & { readonly forMs: number };

/**
 * Lease of a chunk. Longer than any of its steps, including retries after a killed worker: the sweep only has
 * to wake a chunk whose workflow Temporal has lost.
 */
const leaseMs = 60_000;

/** Maximum time one run polls the inbox. A workflow timer could not poll as often. */
const lookLimitMs = 5_000;

/**
 * Maximum number of runs that wait for events at once in a process, of the 100 activities of the batch
 * lane: chunks whose rail takes days must leave room for the decisions and cancellations of other batches.
 */
const mostWaiting = 80;

/** Number of repeated attempts of the others, a second apart: together as long as the others wait. */
const mostPolls = 5;

/** Pause between two polls of the inbox. Doubled while the inbox is empty, to spare the database. */
const firstPauseMs = 50;
const longestPauseMs = 400;

/** The activities of a chunk: the steps of a single payout, applied to hundreds at once. */
export function chunkActivities(deps: ChunkDeps) {
  const { database, temporal, deliverer } = deps;
  const waiting = createKeyedLimit(mostWaiting, 0);
  return {
    /** Submits the payouts that the rail does not have, and looks up those it has not answered. */
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
     * Applies the chunk's events in the inbox, one transaction at a time. While answers of the
     * rail are pending, waits for more events, for at most five seconds: if too many wait here already, by
     * attempts a second apart.
     */
    applyChunkEvents: (chunk: Chunk): Promise<ChunkCounts> =>
      longStep(
        () =>
          waiting('all', () => applyEvents(deps, chunk, lookLimitMs)) ??
          applyEvents(deps, chunk, 0),
      ),

    /** Looks up every payout that the rail has accepted and not reported on. */
    pollChunk: (chunk: Chunk): Promise<ChunkCounts> =>
      withHeartbeat(async () => {
        await leaseChunk(database, chunk, leaseMs);
        const ids = await itemsOf(database, chunk, ['sent']);
        const rows = await readPayouts(database, chunkDriver(chunk), ids);
        const facts = await factsOf(deps, rows);
        await failAfterAttempts(applyInGroups(deps, chunk, [...facts.keys()], facts));
        return countChunk(database, chunk);
      }),

    /** Suspends the chunk until an event arrives or the time is over. False if one is already waiting. */
    suspendChunk: ({ forMs, ...chunk }: SuspendInput): Promise<boolean> =>
      withHeartbeat(() => release(database, chunk, forMs + leaseMs)),

    /** Hands payouts that need an operator, and those of the scope, over to their own workflows. */
    handOverChunk: ({ scope, ...chunk }: HandOverInput): Promise<ChunkCounts> =>
      withHeartbeat(async () => {
        const handed = await handOverItems(database, chunk, scope);
        // Payouts that could not be woken stay due for the sweep.
        await wakePayouts(temporal, handed);
        return countChunk(database, chunk);
      }),
  };
}

/**
 * Processes payouts group by group, each group in its own transaction, and delivers its events while
 * the next group is processed. A group that fails is retried payout by payout, so that a bug triggered
 * by one payout does not hold up the others. The first failure is thrown at the end.
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
      // An unreachable or busy database is no fault of a single payout.
      if (isOutage(error)) throw error;
      if (group.length === 1) failures.push(error);
      else for (const id of group) await workOn([id]);
    }
  };
  for (const group of groupsOf(ids)) await workOn(group);
  if (failures.length > 0) throw failures[0];
  return results;
}

async function applyEvents(deps: ChunkDeps, chunk: Chunk, limitMs: number): Promise<ChunkCounts> {
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
      // Undecided items belong to the batch's workflow. If that has died, the sweep wakes it.
      const forMs = counts.pending > 0 ? leaseMs : null;
      if (isOpen(counts) || (await release(database, chunk, forMs))) return counts;
    } else if (limitMs === 0 && Context.current().info.attempt <= mostPolls) {
      throw retryLater('Too many chunks wait for events.', 1_000);
    } else if (performance.now() - startedMs >= limitMs) {
      return counts;
    }
    await setTimeout(pauseMs);
    pauseMs = Math.min(pauseMs * 2, longestPauseMs);
  }
}

/** Applies the given facts and the events in the inbox to payouts, group by group. */
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

/** Releases a chunk, for ever if `forMs` is null. Keeps it and returns false if an event has arrived. */
function release(database: Database, chunk: Chunk, forMs: number | null): Promise<boolean> {
  return transaction(database, async (sql) => {
    await releaseChunk(sql, chunk, forMs);
    const isReleased = (await itemsWithUnprocessedEvents(sql, chunk)).length === 0;
    if (!isReleased) await leaseChunk(sql, chunk, leaseMs);
    return isReleased;
  });
}

/** Returns what the rails report about payouts, except that they have accepted them. */
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
