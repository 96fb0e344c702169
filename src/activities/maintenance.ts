import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import { type Database, transaction } from '../db/client.js';
import { overdueEndpoints } from '../db/deliveries.js';
import { takeOverduePayouts } from '../db/payouts.js';
import { storeRates } from '../db/rates.js';
import { countBreaks, storeStatement, unreadDays } from '../db/statements.js';
import type { Rail } from '../rails/rail.js';
import type { Rails } from '../rails/registry.js';
import type { RateSource } from '../rates/rateSource.js';
import type { Metrics } from '../telemetry.js';
import { wakeEndpoint, wakePayouts } from '../temporal/wakePayout.js';

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
  const { database, rails, temporal, rateSource, metrics, log } = deps;
  return {
    /** Wakes rows that should be moving and that nobody has touched in time. */
    sweep: async (): Promise<void> => {
      const payouts = await takeOverduePayouts(database);
      const failures = await wakePayouts(temporal, payouts);
      const endpoints = await overdueEndpoints(database);
      for (const endpointId of endpoints) await wakeEndpoint(temporal, endpointId);
      if (payouts.length + endpoints.length > 0) {
        log.info(
          { payouts: payouts.length, endpoints: endpoints.length, failures: failures.length },
          'the sweep woke what was overdue',
        );
      }
    },

    refreshRates: (): Promise<void> => refreshRates(database, rateSource),

    /** Reads the days of every rail's statement that are not closed yet, and counts the breaks. */
    readStatements: async (): Promise<number> => {
      for (const rail of rails.all) await readStatements(database, rail);
      const breaks = await countBreaks(database);
      metrics.statementBreaks.set(breaks);
      return breaks;
    },
  };
}

/** Brings a rail's statement up to date, day by day; a closed day is read once. */
async function readStatements(database: Database, rail: Rail): Promise<void> {
  for (const date of await unreadDays(database, rail.name)) {
    const { closed, lines } = await rail.statement(date);
    await transaction(database, (sql) =>
      storeStatement(sql, { rail: rail.name, date, closed, entries: lines }),
    );
  }
}

/** Reads the source into the table. Also run when a worker starts, so that a quote needs no wait. */
export async function refreshRates(database: Database, source: RateSource): Promise<void> {
  const table = await source.fetch();
  await storeRates(database, { provider: source.provider, asOf: table.asOf }, table.perEuro);
}
