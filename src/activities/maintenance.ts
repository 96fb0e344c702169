import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import type { Database } from '../db/client.js';
import { overdueEndpoints } from '../db/deliveries.js';
import { takeOverduePayouts } from '../db/payouts.js';
import { storeRates } from '../db/rates.js';
import type { RateSource } from '../rates/rateSource.js';
import { wakeEndpoint, wakePayouts } from '../temporal/wakePayout.js';

export type MaintenanceDeps = {
  readonly database: Database;
  readonly temporal: Client;
  readonly rateSource: RateSource;
  readonly log: Logger;
};

/** The activities that keep things moving. */
export function maintenanceActivities({ database, temporal, rateSource, log }: MaintenanceDeps) {
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
  };
}

/** Reads the source into the table. Also run when a worker starts, so that a quote needs no wait. */
export async function refreshRates(database: Database, source: RateSource): Promise<void> {
  const table = await source.fetch();
  await storeRates(database, { provider: source.provider, asOf: table.asOf }, table.perEuro);
}
