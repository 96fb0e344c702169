import { CorridorConnectionError, CorridorProblem, CorridorWaitTimeoutError } from './errors.js';
import { isRepeatable, pause } from './retry.js';

/** How long to wait for something to be final. */
export type WaitOptions = {
  /**
   * In all; a minute, unless told otherwise: most payouts settle within seconds or within days. A
   * read that is under way then has the time of any other request.
   */
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
};

export const defaultWaitMs = 60_000;

/** Soon after the first look, since most are final within a second. */
const firstPauseMs = 250;

/** A read every five seconds is far below the rate limit of an account, also for many waits. */
const longestPauseMs = 5_000;

/** The wait itself reads again, and only until its deadline. */
export const readRetries = 0;

/**
 * Reads an object until it is final. A read that fails says nothing about the object, so the wait
 * goes on; and whatever ends it, the caller gets the object, which may have been sent just before.
 */
export async function untilFinal<Read extends { readonly id: string; readonly status: string }>(
  first: Read,
  {
    isFinal,
    read,
  }: {
    readonly isFinal: (object: Read) => boolean;
    readonly read: () => Promise<Read>;
  },
  { timeoutMs = defaultWaitMs, signal, startedMs }: WaitOptions & { readonly startedMs: number },
): Promise<Read> {
  const deadlineMs = startedMs + timeoutMs;
  let last = first;
  let failure: unknown;
  // The deadline is the limit of the loop.
  for (
    let pauseMs = firstPauseMs;
    !isFinal(last);
    pauseMs = Math.min(longestPauseMs, pauseMs * 2)
  ) {
    const leftMs = deadlineMs - Date.now();
    if (leftMs <= 0) throw new CorridorWaitTimeoutError(last, timeoutMs, failure);
    await pause(Math.min(pauseMs, leftMs), signal);
    try {
      last = await read();
      failure = undefined;
    } catch (error) {
      if (isRefusedForGood(error)) {
        throw new CorridorWaitTimeoutError(last, Date.now() - startedMs, error);
      }
      if (!isOfTheApi(error)) throw error;
      failure = error;
    }
  }
  return last;
}

function isOfTheApi(error: unknown): boolean {
  return error instanceof CorridorConnectionError || error instanceof CorridorProblem;
}

/** Such as for a key that was revoked: to read on would only keep the caller waiting. */
function isRefusedForGood(error: unknown): boolean {
  return error instanceof CorridorProblem && !isRepeatable(error);
}
