import {
  CorridorConnectionError,
  CorridorProblem,
  isProblem,
  type RequestFacts,
} from './errors.js';
import { type Attempt, defaultMaxRetries, pauseBeforeRetryMs, pauseOrAbort } from './retry.js';
import { describedVersion } from './types.js';

/** What a caller may say about one request. */
export type RequestOptions = {
  /**
   * Ends the request and its retries. A read rejects with the signal's reason; a write with a
   * CorridorConnectionError that tells its key, as it may have been executed.
   */
  readonly signal?: AbortSignal | undefined;
  /** How long one attempt may take, answer included. */
  readonly timeoutMs?: number | undefined;
  readonly maxRetries?: number | undefined;
};

/** A write is sent with a key, which is kept over its retries. */
export type WriteOptions = RequestOptions & {
  /** Without one the client makes one up; with one the call may be repeated after a crash as well. */
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
  /** With its query. */
  readonly path: string;
  readonly body?: Body | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Of a write; a read has none. */
  readonly idempotencyKey?: string | undefined;
};

/** The bytes are whole, so that every attempt sends the same. */
export type Body = { readonly contentType: string; readonly text: string };

/** Sends a request, and again while that can help; returns the decoded answer. */
export type Transport = <Answer>(request: ApiRequest, options?: RequestOptions) => Promise<Answer>;

/** The service answers within 13 seconds, except where it was asked to wait. */
const defaultTimeoutMs = 30_000;

/** The transport of one client; it holds no state between requests. */
export function createTransport(options: TransportOptions): Transport {
  const { apiKey, apiUrl, apiVersion = describedVersion } = options;
  const fetchOnce = options.fetch ?? globalThis.fetch;
  // Made now, so that a key with a line break is told at once and not taken for a lost connection.
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
      // The body of a write must not go where a redirect points.
      redirect: 'manual',
      headers: headersOf(sharedHeaders, request),
      ...(body === undefined ? {} : { body: body.text }),
    } as const;
    // The limit is the caller's maxRetries, or the default, which says why it is that number.
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
      // What was answered counts, also when the caller gave up meanwhile: it tells what was done.
      if (outcome.kind === 'answer') return outcome.answer;
      if (outcome.attempt.status === undefined) throwIfAborted(chosen.signal, facts);
      const waitMs = pauseBeforeRetryMs(outcome.attempt, {
        ...{ retries, random: Math.random(), nowMs: Date.now() },
      });
      if (retries >= maxRetries || waitMs === undefined) throw errorOf(outcome, facts);
      await pauseOrAbort(waitMs, chosen.signal);
      throwIfAborted(chosen.signal, facts);
    }
  };
}

/** A write that its caller gives up may have been executed, so its key must not be lost with it. */
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

/** Told to the service with every request; a test compares it with package.json. */
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
    // No answer, a part of one, or one that is no JSON: whether the request arrived is unknown.
    return { kind: 'failure', attempt: {}, cause };
  }
}

function errorOf({ attempt, body, cause }: Failure, facts: RequestFacts): Error {
  if (isProblem(body)) return new CorridorProblem(body, facts);
  if (attempt.status !== undefined) {
    const { status } = attempt;
    return new CorridorConnectionError(`Something other than the API answered ${status}.`, {
      ...{ ...facts, status },
    });
  }
  const said = cause instanceof Error ? reasonOf(cause) : String(cause);
  return new CorridorConnectionError(`The API did not answer: ${said}.`, { ...facts, cause });
}

/** fetch says "fetch failed", and why only in the cause. */
function reasonOf({ message, cause }: Error): string {
  return cause instanceof Error ? cause.message : message;
}

/** What an answer holds is what the document says: the service tests each against it. */
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
