import { Context } from '@temporalio/activity';
import type { Client } from '@temporalio/client';
import { claimOverdueChunks } from '../db/chunks.js';
import { type Database, isRaisedByFunction, longTransaction, type Sql } from '../db/client.js';
import { overdueEndpoints, purgeAttempts, purgeDeliveries } from '../db/deliveries.js';
import { endOverdueGroups } from '../db/deliveryGroups.js';
import { purgeExpiredKeys } from '../db/idempotency.js';
import { recordHeartbeat, sinceHeartbeatMs } from '../db/interruptions.js';
import { listBalanceBreaks } from '../db/ledger.js';
import { listOrphans } from '../db/orphans.js';
import { claimOverduePayouts } from '../db/payouts.js';
import { purgeUnusedQuotes } from '../db/quotes.js';
import { currentRates, storeRates } from '../db/rates.js';
import { areStatementsRecent, countBreaks, movementTotals } from '../db/statements.js';
import { purgeProbes } from '../db/webhookProbes.js';
import { count, show } from '../metrics.js';
import { isReachable } from '../temporal/client.js';
import { startBatches, wakeChunks, wakeEndpoints } from '../temporal/workflowCalls.js';
import type { ActivityDeps, WakingDeps } from './deps.js';
import { throwForeign, withHeartbeat } from './failure.js';
import { readStatements } from './statements.js';
import { wakeOwn } from './waking.js';

type SweepDeps = WakingDeps & Pick<ActivityDeps, 'log'>;
type MaintenanceDeps = SweepDeps & Pick<ActivityDeps, 'rails' | 'rateSource'>;

/** Timeout of the comparison of balances. Ten million postings take three seconds of one processor. */
const comparisonLimitMs = 3 * 60_000;
/** Timeout of each of two queries over all statement lines. The activity's other minute is for reading. */
const statementsLimitMs = 2 * 60_000;
/** Timeout of the search for orphans, some seconds for the newest rows of five tables. A minute is left. */
const orphansLimitMs = 60_000;

/** The activities that run on a schedule. */
export function maintenanceActivities(deps: MaintenanceDeps) {
  const { database, rails, log } = deps;
  return {
    /** Wakes the workflows of rows that are overdue. */
    sweep: (): Promise<void> => withHeartbeat(() => sweep(deps)),

    refreshRates: (): Promise<void> => refreshRates(deps),

    /** Deletes rows whose retention is over and returns how many. */
    purge: (): Promise<number> => purge(database),

    /**
     * Reads the statements of every rail that have not been read as closed, and counts the breaks. Fails if
     * a day cannot be read, but first counts what the bank's other days show.
     */
    readStatements: (): Promise<number> =>
      withHeartbeat(async () => {
        const read = await Promise.allSettled(
          Array.from(rails.values(), (rail) => readStatements(database, rail)),
        );
        const failed = read.find((each) => each.status === 'rejected');
        // Retries come every minute while a day cannot be read. They count once an hour.
        if (failed && Context.current().info.attempt % 60 !== 1) throw failed.reason;
        const breaksIn = (sql: Sql) => countBreaks(sql, failed === undefined);
        const breaks = await longTransaction(database, statementsLimitMs, breaksIn);
        show('statement_breaks', {}, breaks);
        if (failed) showCompared('statements in part');
        if (failed) throw failed.reason;
        const totals = await longTransaction(database, statementsLimitMs, movementTotals);
        for (const { currency, direction, drift } of totals) {
          show('ledger_drift_minor', { currency, direction }, drift);
        }
        showCompared((await areStatementsRecent(database)) ? 'statements' : 'statements in part');
        return breaks;
      }),

    /** Compares customers' balances with their postings. Counts those that differ, and orphans. */
    compareBalances: (): Promise<number> =>
      withHeartbeat(async () => {
        const breaks = await longTransaction(database, comparisonLimitMs, listBalanceBreaks);
        show('balance_breaks', {}, breaks.length);
        showCompared('balances');
        if (breaks.length > 0) {
          log.error({ breaks: breaks.length }, 'balances differ from their postings');
        }
        const orphans = await longTransaction(database, orphansLimitMs, listOrphans);
        show('orphan_rows', {}, orphans.length);
        showCompared('orphans');
        if (orphans.length > 0) {
          log.error({ first: orphans[0] }, 'rows refer to rows that do not exist');
        }
        return breaks.length;
      }),
  };
}

function showCompared(books: string): void {
  show('books_compared_timestamp_seconds', { books }, Date.now() / 1000);
}

/** Rows deleted by one statement, which takes a tenth of a second or less and so holds up nothing. */
const purgeSlice = 10_000;

/** Below the activity's timeout. The next run, in an hour, goes on: a million rows or more an hour. */
const purgeLimitMs = 20_000;

async function purge(database: Database): Promise<number> {
  const endsAtMs = performance.now() + purgeLimitMs;
  let deleted = 0;
  const purges = [purgeExpiredKeys, purgeDeliveries, purgeAttempts, purgeProbes, purgeUnusedQuotes];
  for (const deleteSlice of purges) {
    let count = purgeSlice;
    while (count === purgeSlice && performance.now() < endsAtMs) {
      ({ count } = await deleteSlice(database, purgeSlice));
      deleted += count;
    }
  }
  return deleted;
}

async function sweep({ database, temporal, log }: SweepDeps): Promise<void> {
  // First: it records periods that the database has lost, and payouts woken after it may be sent again.
  await recordHeartbeat(database);
  const payouts = await claimOverduePayouts(database);
  const failures = await wakeOwn({ database, temporal }, payouts);
  const chunks = await wakeOverdueChunks(database, temporal);
  await endOverdueGroups(database);
  const endpoints = await overdueEndpoints(database);
  await wakeEndpoints(temporal, endpoints);
  if (payouts.length + chunks + endpoints.length > 0) {
    const counts = { payouts: payouts.length, chunks, endpoints: endpoints.length };
    log.info({ ...counts, failures }, 'the sweep woke what was overdue');
  }
}

/** Three times the interval of the schedule: while all is well, no sweep is as late as this. */
const lateAfterMs = 15_000;

/**
 * Sweeps if the schedule has not. Temporal's scheduler can stand still for minutes while the rest of
 * Temporal works, as it did after one of two servers had been frozen for half a minute.
 */
export async function sweepIfLate(deps: SweepDeps): Promise<void> {
  const lateMs = await sinceHeartbeatMs(deps.database);
  // While Temporal is unreachable nothing can be woken; once it is back, its schedule sweeps.
  if (lateMs < lateAfterMs || !(await isReachable(deps.temporal))) return;
  count('late_sweeps_total', {});
  deps.log.warn({ lateMs }, 'the schedule has not swept; this worker sweeps instead');
  await sweep(deps);
}

/** A chunk with undecided items is left to its batch's workflow, which decides in order. */
async function wakeOverdueChunks(database: Database, temporal: Client): Promise<number> {
  const chunks = await claimOverdueChunks(database);
  const undecided = chunks.filter((chunk) => chunk.isUndecided);
  const others = chunks.filter((chunk) => !chunk.isUndecided);
  // Chunks that could not be woken are soon overdue again.
  await startBatches(temporal, [...new Set(undecided.map(({ batchId }) => batchId))]);
  await wakeChunks(temporal, others);
  return chunks.length;
}

type RateDeps = Pick<MaintenanceDeps, 'database' | 'rateSource' | 'log'>;

/** Stores the rates of the source, and logs those that wait for an operator to accept them. */
async function refreshRates({ database, rateSource, log }: RateDeps): Promise<void> {
  const rates = await rateSource.fetch().catch(throwForeign);
  for (const { id, ...rate } of await storeRates(database, rateSource, rates)) {
    log.warn({ ...rate, id: id.toString() }, 'a rate jumped and waits for corridor rates accept');
  }
}

/**
 * Reads the rates when a worker starts, so that quotes need not wait for them. A worker does not start
 * if the database refuses its source. If the source fails, it starts with the stored rates, if usable.
 */
export async function startRates(deps: RateDeps, maximumAgeMs: number): Promise<void> {
  try {
    await refreshRates(deps);
  } catch (error) {
    const usable = await currentRates(deps.database, maximumAgeMs);
    if (isRaisedByFunction(error) || usable.length === 0) throw error;
    deps.log.error({ err: error }, 'the rates could not be read; the stored rates are used');
  }
}
