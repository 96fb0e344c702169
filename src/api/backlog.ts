import type { Client } from '@temporalio/client';
import type { Logger } from 'pino';
import { readBacklog } from '../db/backlog.js';
import type { Database } from '../db/client.js';
import { showBacklog } from '../metrics.js';
import { readQueueBacklog } from '../temporal/queueBacklog.js';

/** However many read the metrics, what waits is read once in so long. */
const freshMs = 10_000;

/**
 * Shows what waits, read by the API: it also sees what waits because no worker runs. What cannot be
 * read is shown as it was, and the time at which it was.
 */
export function createBacklog(database: Database, temporal: Client, log: Logger) {
  const warn = (err: unknown) => log.warn({ err }, 'what waits could not be read');
  const read = async (): Promise<void> => {
    await Promise.all([
      readBacklog(database).then((samples) => showBacklog('database', samples), warn),
      readQueueBacklog(temporal).then((samples) => showBacklog('temporal', samples), warn),
    ]);
  };
  let last = { atMs: Number.NEGATIVE_INFINITY, done: Promise.resolve() };
  return (): Promise<void> => {
    const nowMs = performance.now();
    if (nowMs - last.atMs > freshMs) last = { atMs: nowMs, done: read() };
    return last.done;
  };
}
