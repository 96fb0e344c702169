import { CorridorConnectionError, CorridorProblem, CorridorWaitTimeoutError } from './errors.js';
import { isRepeatable, pause } from './retry.js';

/** Options for waiting until a payout or batch is final. */
export type WaitOptions = {
  /**
   * Timeout of the whole wait, by default a minute: most payouts settle within seconds or within days. A
   * read in flight when it expires may still take as long as any other request.
   */
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
};

export const defaultWaitMs = 60_000;

/** Pause after the first read: short, because most payouts are final within a second. */
const firstPauseMs = 250;

/** Maximum pause: a read every five seconds is far below the account's rate limit, even for many waits. */
const longestPauseMs = 5_000;

/** Reads are not retried, because the wait itself repeats them until its deadline. */
export const readRetries = 0;

/**
 * Reads an object until it is final. Continues after a failed read, which says nothing about the object.
 * The error that ends a wait contains the object, because the caller may just have created it.
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
  // Bounded by the deadline.
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

/** Returns whether reading again is pointless, for example because the API key was revoked. */
function isRefusedForGood(error: unknown): boolean {
  return error instanceof CorridorProblem && !isRepeatable(error);
}
