import { setTimeout as delay } from 'node:timers/promises';
import { startStopwatch } from './stopwatch.js';

/** Short against everything that is waited for, which takes a tenth of a second and more. */
const pauseMs = 50;

/**
 * Looks again and again until there is something to see, for what no event tells of: a row,
 * a file, another process.
 *
 * @throws Error naming `what` when the limit passes first; whatever `look` throws
 */
export async function eventually<T>(
  what: string,
  limitMs: number,
  look: () => T | undefined | Promise<T | undefined>,
): Promise<T> {
  const elapsedMs = startStopwatch();
  for (;;) {
    const seen = await look();
    if (seen !== undefined) return seen;
    if (elapsedMs() > limitMs) throw new Error(`${what}: not within ${limitMs} ms.`);
    await delay(pauseMs);
  }
}
