/**
 * The retry policy. A write keeps its idempotency key over its retries, so that the service executes it
 * only once.
 */

/** The outcome of one attempt. Without a response there is no status. */
export type Attempt = {
  readonly status?: number;
  readonly code?: string;
  readonly retryAfter?: string | null;
};

/** Four retries, with 7.5 seconds of pauses on average, outlast a restart of the service. */
export const defaultMaxRetries = 4;

/** The first pause. For comparison, the service's Retry-After for a request in progress is 1 second. */
const firstPauseMs = 500;

/** Maximum pause: an outage can end at any moment, so a longer pause would only delay the caller. */
const longestPauseMs = 8_000;

/** Maximum Retry-After that is obeyed. Beyond it, the caller should decide whether to wait. */
const longestRetryAfterMs = 60_000;

/** Codes for which the documentation of errors allows repeating the request with the same key. */
const repeatableCodes: ReadonlySet<string> = new Set([
  ...['request_timeout', 'request_in_progress', 'rate_limited', 'too_many_in_flight'],
  ...['service_unavailable', 'internal_error'],
]);

/** Statuses from intermediaries such as proxies: the service itself always returns a code. */
const repeatableStatuses: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/**
 * Returns the pause before the next attempt, or undefined if the request should not be retried.
 *
 * @param retries the number of retries so far
 * @param random a number in [0, 1), the jitter for callers that failed at the same time
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

/** Returns whether the same request may have a different outcome later. */
export function isRepeatable({ status, code }: Attempt, askedMs?: number): boolean {
  if (status === undefined) return true;
  if (code === undefined) return repeatableStatuses.has(status);
  // A payout refused for lack of a rate stays refused. In that case the API sends no Retry-After.
  if (code === 'rate_unavailable') return askedMs !== undefined;
  return repeatableCodes.has(code);
}

/** Parses Retry-After (RFC 9110, section 10.2.3): a number of seconds or a date. */
function retryAfterMs(header: string | null, nowMs: number): number | undefined {
  if (header === null) return undefined;
  if (/^\d+$/.test(header)) return Number.parseInt(header, 10) * 1_000;
  const atMs = Date.parse(header);
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - nowMs);
}

/** Waits. Rejects with the signal's reason as soon as the signal is aborted. */
export async function pause(delayMs: number, signal: AbortSignal | undefined): Promise<void> {
  await pauseOrAbort(delayMs, signal);
  signal?.throwIfAborted();
}

/** Waits for the given time or until the signal is aborted, whichever comes first. */
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
