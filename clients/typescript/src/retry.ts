/**
 * When a request is sent again, and after how long. A write keeps its idempotency key, so the
 * service executes it once however often it is sent.
 */

/** What came of one attempt; no status where no answer came. */
export type Attempt = {
  readonly status?: number;
  readonly code?: string;
  readonly retryAfter?: string | null;
};

/** Four more attempts outlast a restart of the service: 7.5 seconds of pauses on average. */
export const defaultMaxRetries = 4;

/** The first pause: the service's own Retry-After for a request in progress is 1 second. */
const firstPauseMs = 500;

/** Longer pauses would only keep the caller waiting, as an outage is over at any moment. */
const longestPauseMs = 8_000;

/** A caller that is told to wait for longer decides about that itself. */
const longestRetryAfterMs = 60_000;

/** Answers after which the errors page says that the same request may be sent with the same key. */
const repeatableCodes: ReadonlySet<string> = new Set([
  ...['request_timeout', 'request_in_progress', 'rate_limited', 'too_many_in_flight'],
  ...['service_unavailable', 'internal_error'],
]);

/** Answers of what is between: the service itself always names a code. */
const repeatableStatuses: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/**
 * The pause before the next attempt, or undefined if there is to be none.
 *
 * @param retries how many there were already
 * @param random a number in [0, 1), which spreads callers that failed together
 */
export function pauseBeforeRetryMs(
  attempt: Attempt,
  {
    retries,
    random,
    nowMs,
  }: { readonly retries: number; readonly random: number; readonly nowMs: number },
): number | undefined {
  const askedMs = retryAfterMs(attempt.retryAfter ?? null, nowMs);
  if (!isRepeatable(attempt, askedMs) || (askedMs ?? 0) > longestRetryAfterMs) return undefined;
  const pauseMs = Math.min(longestPauseMs, firstPauseMs * 2 ** retries) * (0.5 + random);
  return Math.max(pauseMs, (askedMs ?? 0) * (1 + random / 10));
}

/** Whether the same request may have another outcome later. */
export function isRepeatable({ status, code }: Attempt, askedMs?: number): boolean {
  if (status === undefined) return true;
  if (code === undefined) return repeatableStatuses.has(status);
  // A payout that was refused for want of a rate stays refused; the API then names no time.
  if (code === 'rate_unavailable') return askedMs !== undefined;
  return repeatableCodes.has(code);
}

/** Retry-After (RFC 9110, section 10.2.3) is a number of seconds or a date. */
function retryAfterMs(header: string | null, nowMs: number): number | undefined {
  if (header === null) return undefined;
  if (/^\d+$/.test(header)) return Number.parseInt(header, 10) * 1_000;
  const atMs = Date.parse(header);
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - nowMs);
}

/** Waits; rejects with the signal's reason as soon as that is aborted. */
export async function pause(delayMs: number, signal: AbortSignal | undefined): Promise<void> {
  await pauseOrAbort(delayMs, signal);
  signal?.throwIfAborted();
}

/** Waits until the time is over or the signal is aborted, whichever is first. */
export async function pauseOrAbort(
  delayMs: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  if (signal?.aborted === true) return;
  await new Promise<void>((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, delayMs);
    signal?.addEventListener('abort', end);
  });
}
