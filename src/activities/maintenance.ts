import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import { takeOverdueChunks } from '../db/chunks.js';
import type { Database } from '../db/client.js';
import { overdueEndpoints } from '../db/deliveries.js';
import { purgeExpiredKeys } from '../db/idempotency.js';
import { postponeQuiet, takeOverduePayouts } from '../db/payouts.js';
import { storeRates } from '../db/rates.js';
import { countBreaks } from '../db/statements.js';
import type { Rails } from '../rails/registry.js';
import type { RateSource } from '../rates/rateSource.js';
import type { Metrics } from '../telemetry.js';
import { startBatch, wakeChunks, wakeEndpoint, wakePayouts } from '../temporal/wakePayout.js';
import { beating } from './failure.js';
import { readStatements } from './statements.js';

export type MaintenanceDeps = {
  readonly rails: Rails;
  readonly metrics: Metrics;
  readonly database: Database;
  readonly temporal: Client;
  readonly rateSource: RateSource;
  readonly log: Logger;
};

/** The activities that keep things moving. */
export function maintenanceActivities(deps: MaintenanceDeps) {
  const { database, rails, rateSource, metrics } = deps;
  return {
    /** Wakes rows that should be moving and that nobody has touched in time. */
    sweep: (): Promise<void> => beating(() => sweep(deps)),

    refreshRates: (): Promise<void> => refreshRates(database, rateSource),

    /** Forgets what need not be remembered any longer; answers how much it was. */
    purge: (): Promise<number> => purgeExpiredKeys(database),

    /** Reads the days of every rail's statement that are not closed yet, and counts the breaks. */
    readStatements: async (): Promise<number> => {
      for (const rail of rails.all) await readStatements(database, rail);
      const breaks = await countBreaks(database);
      metrics.statementBreaks.set(breaks);
      return breaks;
    },
  };
}

async function sweep({ database, temporal, log }: MaintenanceDeps): Promise<void> {
  const payouts = await takeOverduePayouts(database);
  const failures = await wakePayouts(temporal, payouts);
  const failed = new Set(failures.map(({ id }) => id));
  const woken = payouts.filter(({ id }) => !failed.has(id));
  await postponeQuiet(
    database,
    woken.map(({ id }) => id),
  );
  const chunks = await wakeOverdueChunks(database, temporal);
  const endpoints = await overdueEndpoints(database);
  for (const endpointId of endpoints) await wakeEndpoint(temporal, endpointId);
  if (payouts.length + chunks + endpoints.length > 0) {
    const counts = { payouts: payouts.length, chunks, endpoints: endpoints.length };
    log.info({ ...counts, failures: failures.length }, 'the sweep woke what was overdue');
  }
}

/** A chunk with undecided items is the business of its batch, which decides in order. */
async function wakeOverdueChunks(database: Database, temporal: Client): Promise<number> {
  const chunks = await takeOverdueChunks(database);
  const undecided = chunks.filter((chunk) => chunk.isUndecided);
  const batches = new Set(undecided.map(({ batchId }) => batchId));
  for (const batchId of batches) await startBatch(temporal, batchId);
  // What could not be woken is overdue again in a moment.
  await wakeChunks(
    temporal,
    chunks.filter((chunk) => !chunk.isUndecided),
  );
  return chunks.length;
}

/** Reads the source into the table. Also run when a worker starts, so that a quote needs no wait. */
export async function refreshRates(database: Database, source: RateSource): Promise<void> {
  const table = await source.fetch();
  await storeRates(database, { provider: source.provider, asOf: table.asOf }, table.perEuro);
}
