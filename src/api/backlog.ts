import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import { readBacklog } from '../db/backlog.js';
import type { Database } from '../db/client.js';
import { show, showBacklog } from '../metrics.js';
import { readQueueBacklog } from '../temporal/queueBacklog.js';
import { cached } from './cached.js';

/** How long one reading of the backlog is reused, however many clients read the metrics. */
const freshMs = 10_000;

/**
 * Publishes the backlog as metrics. The API reads it because that also works while no worker runs. A part
 * that cannot be read keeps its last values and their time.
 */
export function createBacklog(database: Database, temporal: Client, log: Logger) {
  // A process that starts during an outage counts its time as well: alerts ignore what has no value.
  for (const from of ['database', 'temporal']) {
    show('backlog_read_timestamp_seconds', { from }, Date.now() / 1000);
  }
  const warn = (err: unknown) => log.warn({ err }, 'the backlogs could not be read');
  return cached(async (): Promise<void> => {
    await Promise.all([
      readBacklog(database).then((samples) => showBacklog('database', samples), warn),
      readQueueBacklog(temporal).then((samples) => showBacklog('temporal', samples), warn),
    ]);
  }, freshMs);
}
