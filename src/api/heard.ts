import type { ApiDeps, Refused } from './route.js';

/**
 * Whether Temporal did what it was asked within its time. The rows are the request: a repeat or
 * the sweep goes on from them, so that not to be heard is no failure.
 */
export async function isHeard(
  { log }: ApiDeps,
  object: NonNullable<Refused['object']>,
  ask: () => Promise<unknown>,
): Promise<boolean> {
  try {
    await ask();
    return true;
  } catch (error) {
    log.warn({ err: error, ...object }, 'Temporal did not answer in time');
    return false;
  }
}
