import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import { readBacklog } from '../db/backlog.js';
import type { Database } from '../db/client.js';
import { createBacklogGauges, type Metrics } from '../telemetry.js';
import { readQueueBacklog } from '../temporal/queueBacklog.js';

/** However many read the metrics, what waits is read once in so long. */
const freshMs = 10_000;

type BacklogDeps = {
  readonly database: Database;
  readonly temporal: Client;
  readonly metrics: Metrics;
  readonly log: Logger;
};

/**
 * Shows what waits, read by the API: it also sees what waits because no worker runs. What cannot be
 * read is shown as it was, and the time at which it was.
 */
export function createBacklog({ database, temporal, metrics, log }: BacklogDeps) {
  const show = createBacklogGauges(metrics);
  const read = async (): Promise<void> => {
    const results = await Promise.allSettled([
      readBacklog(database).then((samples) => show('database', samples)),
      readQueueBacklog(temporal).then((samples) => show('temporal', samples)),
    ]);
    for (const result of results) {
      if (result.status === 'rejected') log.warn({ err: result.reason }, 'a backlog was not read');
    }
  };
  let last = { atMs: Number.NEGATIVE_INFINITY, done: Promise.resolve() };
  return (): Promise<void> => {
    const nowMs = performance.now();
    if (nowMs - last.atMs > freshMs) last = { atMs: nowMs, done: read() };
    return last.done;
  };
}
