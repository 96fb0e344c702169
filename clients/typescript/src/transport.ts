import {
  CorridorConnectionError,
  CorridorProblem,
  isProblem,
  type RequestFacts,
} from './errors.js';
import { type Attempt, defaultMaxRetries, pauseBeforeRetryMs, pauseOrAbort } from './retry.js';
import { describedVersion } from './types.js';

/** Options for one request. */
export type RequestOptions = {
  /**
   * Aborts the request and its retries. A read rejects with the signal's reason. A write rejects with a
   * CorridorConnectionError that contains its idempotency key, because it may have been executed.
   */
  readonly signal?: AbortSignal | undefined;
  /** Timeout of one attempt, including its response. */
  readonly timeoutMs?: number | undefined;
  readonly maxRetries?: number | undefined;
};

/** Options for a write, which is sent with an idempotency key that stays the same over its retries. */
export type WriteOptions = RequestOptions & {
  /** By default the client generates a key. With your own, the call can be repeated even after a crash. */
  readonly idempotencyKey?: string | undefined;
};

export type TransportOptions = {
  readonly apiKey: string;
  readonly apiUrl: string;
  readonly apiVersion?: string | undefined;
  readonly maxRetries?: number | undefined;
  readonly timeoutMs?: number | undefined;
  readonly fetch?: typeof globalThis.fetch | undefined;
};

export type ApiRequest = {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** The path including the query. */
  readonly path: string;
  readonly body?: Body | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Set for writes only. */
  readonly idempotencyKey?: string | undefined;
};

/** A complete body rather than a stream, so that every attempt sends the same bytes. */
export type Body = { readonly contentType: string; readonly text: string };

/** Sends a request, retries it while that can help and returns the decoded response. */
export type Transport = <Answer>(request: ApiRequest, options?: RequestOptions) => Promise<Answer>;

/** The service responds within 13 seconds, unless the request asks it to wait. */
const defaultTimeoutMs = 30_000;

/** Creates a client's transport, which keeps no state between requests. */
export function createTransport(options: TransportOptions): Transport {
  const { apiKey, apiUrl, apiVersion = describedVersion } = options;
  const fetchOnce = options.fetch ?? globalThis.fetch;
  // Created now, so that a key with a line break fails at once and is not mistaken for a connection error.
  const sharedHeaders = new Headers({
    authorization: `Bearer ${apiKey}`,
    accept: 'application/json, application/problem+json',
    'corridor-version': apiVersion,
    'user-agent': `corridor-client-typescript/${clientVersion}`,
  });
  return async <Answer>(request: ApiRequest, chosen: RequestOptions = {}) => {
    const { method, path, body, idempotencyKey } = request;
    const maxRetries = chosen.maxRetries ?? options.maxRetries ?? defaultMaxRetries;
    const timeoutMs = chosen.timeoutMs ?? options.timeoutMs ?? defaultTimeoutMs;
    const init = {
      method,
      // The body of a write must not be sent to the target of a redirect.
      redirect: 'manual',
      headers: headersOf(sharedHeaders, request),
      ...(body === undefined ? {} : { body: body.text }),
    } as const;
    let isDoubtful = false;
    // Bounded by the caller's maxRetries or defaultMaxRetries.
    for (let retries = 0; ; retries += 1) {
      const facts = { idempotencyKey, attempts: retries + 1 };
      const outcome = await attemptOnce<Answer>(async () => {
        const signals = [AbortSignal.timeout(timeoutMs), ...(chosen.signal ? [chosen.signal] : [])];
        const answer = await fetchOnce(apiUrl + path, {
          ...init,
          signal: AbortSignal.any(signals),
        });
        return { answer, text: await answer.text() };
      });
      // A response is used even if the caller has aborted, because it tells whether the write was executed.
      if (outcome.kind === 'answer') return outcome.answer;
      if (outcome.attempt.status === undefined) throwIfAborted(chosen.signal, facts);
      const waitMs = pauseBeforeRetryMs(outcome.attempt, {
        ...{ retries, random: Math.random(), nowMs: Date.now() },
      });
      isDoubtful ||= mayBeExecuted(outcome);
      if (retries >= maxRetries || waitMs === undefined) throw errorOf(outcome, facts, isDoubtful);
      await pauseOrAbort(waitMs, chosen.signal);
      throwIfAborted(chosen.signal, facts);
    }
  };
}

/** Throws after an abort. For a write the error contains the key, because it may have been executed. */
export function throwIfAborted(signal: AbortSignal | undefined, facts: RequestFacts): void {
  if (signal?.aborted !== true) return;
  if (facts.idempotencyKey === undefined) signal.throwIfAborted();
  throw new CorridorConnectionError('The call was aborted.', { ...facts, cause: signal.reason });
}

function headersOf(shared: Headers, { body, headers, idempotencyKey }: ApiRequest): Headers {
  const all = new Headers(shared);
  for (const [name, value] of Object.entries(headers ?? {})) all.set(name, value);
  if (body !== undefined) all.set('content-type', body.contentType);
  if (idempotencyKey !== undefined) all.set('idempotency-key', idempotencyKey);
  return all;
}

/** Sent with every request. A test compares it with package.json. */
const clientVersion = '0.1.0';

type Failure = {
  readonly kind: 'failure';
  readonly attempt: Attempt;
  readonly body?: unknown;
  readonly cause?: unknown;
};
type Outcome<Answer> = { readonly kind: 'answer'; readonly answer: Answer } | Failure;

async function attemptOnce<Answer>(
  send: () => Promise<{ readonly answer: Response; readonly text: string }>,
): Promise<Outcome<Answer>> {
  try {
    const { answer, text } = await send();
    if (answer.ok) return { kind: 'answer', answer: decode<Answer>(text) };
    const body = decodeOrUndefined(text);
    const code = isProblem(body) ? { code: body.code } : {};
    const retryAfter = answer.headers.get('retry-after');
    return { kind: 'failure', attempt: { status: answer.status, retryAfter, ...code }, body };
  } catch (cause) {
    // No response, an incomplete one, or one that is not JSON: whether the request arrived is unknown.
    return { kind: 'failure', attempt: {}, cause };
  }
}

/** Whether the request may have been executed although no answer says so. */
function mayBeExecuted({ attempt: { status }, body }: Failure): boolean {
  if (status === undefined || !isProblem(body) || body.code === 'request_in_progress') return true;
  return status >= 500 && body.code !== 'rate_unavailable';
}

/** @param isDoubtful whether an attempt may have been executed */
function errorOf(
  { attempt, body, cause }: Failure,
  facts: RequestFacts,
  isDoubtful: boolean,
): Error {
  if (isProblem(body)) {
    const problem = new CorridorProblem(body, facts);
    if (!isDoubtful || facts.idempotencyKey === undefined || isOfFirst(problem)) return problem;
    const message = `The request may have been executed: the last answer was ${body.code}.`;
    return new CorridorConnectionError(message, { ...facts, cause: problem });
  }
  if (attempt.status !== undefined) {
    const { status } = attempt;
    return new CorridorConnectionError(`Something other than the API answered ${status}.`, {
      ...{ ...facts, status },
    });
  }
  const said = cause instanceof Error ? reasonOf(cause) : String(cause);
  return new CorridorConnectionError(`The API did not answer: ${said}.`, { ...facts, cause });
}

/**
 * Whether a refusal says what became of the first request with the key. The API makes most others before it looks
 * up the key, and `idempotency_key_reused` says that the first request was executed.
 */
function isOfFirst({ code, status, payout, batch }: CorridorProblem): boolean {
  if (code === 'idempotency_key_reused') return false;
  if (status >= 500) return code === 'rate_unavailable';
  return (payout ?? batch) !== undefined || status === 422 || code === 'not_found';
}

/** Returns the cause's message, because fetch's own message is only "fetch failed". */
function reasonOf({ message, cause }: Error): string {
  return cause instanceof Error ? cause.message : message;
}

/** Decodes without validation: the service's tests check every response against the OpenAPI document. */
function decode<Answer>(text: string): Answer {
  return JSON.parse(text);
}

function decodeOrUndefined(text: string): unknown {
  try {
    return decode<unknown>(text);
  } catch {
    return undefined;
  }
}
