import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import { readBacklog } from '../db/backlog.js';
import { type Database, longTransaction } from '../db/client.js';
import { show, showBacklog } from '../metrics.js';
import { readQueueBacklog } from '../temporal/queueBacklog.js';
import { cached } from './cached.js';

/** How long one reading of the backlog is reused, however many clients read the metrics. */
const freshMs = 10_000;

/** How long a scrape waits for the database: a host that has vanished never answers, and Prometheus waits 10 s. */
const databaseLimitMs = 3_000;

/** Statement timeout of a reading. With 300,000 open payouts it takes two seconds, longer than a list may. */
const statementLimitMs = 20_000;

/** After this a reading is given up: TCP takes a quarter of an hour to, and after a failover the next one succeeds. */
const readingLimitMs = 60_000;

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
  const read = () => longTransaction(database, statementLimitMs, readBacklog);
  let reading: Promise<void> | undefined;
  const readDatabase = (): Promise<void> => {
    // A reading that hangs keeps its connection, so at most one a minute starts.
    reading ??= Promise.race([
      read().then((samples) => showBacklog('database', samples), warn),
      delay(readingLimitMs, undefined, { ref: false }),
    ]).finally(() => {
      reading = undefined;
    });
    return Promise.race([reading, delay(databaseLimitMs, undefined, { ref: false })]);
  };
  return cached(async (): Promise<void> => {
    await Promise.all([
      readDatabase(),
      readQueueBacklog(temporal).then((samples) => showBacklog('temporal', samples), warn),
    ]);
  }, freshMs);
}
