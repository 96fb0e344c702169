import { setTimeout as delay } from 'node:timers/promises';
import { startStopwatch } from './stopwatch.js';

/** Pause between polls. It is short compared with typical waits of a tenth of a second or more. */
const pauseMs = 50;

/**
 * Polls until `poll` returns a value, for changes without a notification: a row, a file, another
 * process.
 *
 * @throws Error naming `what` when the limit passes first, and any error from `poll`
 */
export async function eventually<T>(
  what: string,
  limitMs: number,
  poll: () => T | undefined | Promise<T | undefined>,
): Promise<T> {
  const elapsedMs = startStopwatch();
  for (;;) {
    const seen = await poll();
    if (seen !== undefined) return seen;
    if (elapsedMs() > limitMs) throw new Error(`${what}: not within ${limitMs} ms.`);
    await delay(pauseMs);
  }
}
