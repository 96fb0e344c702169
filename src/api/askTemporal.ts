import type { ApiDeps, Refused } from './route.js';

/**
 * Asks Temporal, and answers whether it did so within its time. The rows are the request: a repeat
 * or the sweep goes on from them, so that no answer is no failure.
 */
export async function askTemporal(
  { log }: ApiDeps,
  object: NonNullable<Refused['object']>,
  ask: () => Promise<unknown>,
): Promise<boolean> {
  try {
    await ask();
    return true;
  } catch (error) {
    log.warn({ err: error, ...object }, 'a request to Temporal failed');
    return false;
  }
}
