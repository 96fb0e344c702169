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
  readonly rateMaximumAgeMs: number;
};

/**
 * Shows what waits, read by the API: it also sees what waits because no worker runs. What cannot be
 * read is shown as it was, and the time at which it was.
 */
export function createBacklog(deps: BacklogDeps): () => Promise<void> {
  const { database, temporal, metrics, log } = deps;
  const ageLimit = {
    metric: 'rate_age_limit_seconds',
    labels: {},
    value: deps.rateMaximumAgeMs / 1000,
  } as const;
  const show = createBacklogGauges(metrics);
  const read = async (): Promise<void> => {
    const results = await Promise.allSettled([
      readBacklog(database).then((samples) => show('database', [...samples, ageLimit])),
      readQueueBacklog(temporal).then((samples) => show('temporal', samples)),
    ]);
    for (const result of results) {
      if (result.status === 'rejected') log.warn({ err: result.reason }, 'a backlog was not read');
    }
  };
  let last = { atMs: Number.NEGATIVE_INFINITY, done: Promise.resolve() };
  return () => {
    const nowMs = performance.now();
    if (nowMs - last.atMs > freshMs) last = { atMs: nowMs, done: read() };
    return last.done;
  };
}
