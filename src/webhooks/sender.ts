import { Pool } from 'undici';
import { createEgressProxy } from './egressProxy.js';
import {
  BlockedAddressError,
  expectedOfWebhookUrl,
  guardedConnector,
  guardedLookups,
  type UrlPolicy,
} from './guard.js';
import { createSigner, type Message, webhookHeaders } from './signature.js';

/** One attempt to deliver one message. */
export type Delivery = Message & {
  /** Connections are pooled per account, so that slow receivers of other accounts on the host do no harm. */
  readonly account: string;
  readonly url: string;
  /** Returns the start of the response body even if the status is 2xx. */
  readonly readsAnswer?: boolean;
};

/**
 * The outcome of one attempt: `delivered` is any 2xx, `gone` is 410, `refused` any other status, and
 * `blocked` means that our policy forbade sending, so nothing was sent.
 */
export type SendOutcome =
  | { readonly kind: 'delivered'; readonly status: number }
  | (Answered & { readonly kind: 'delivered' })
  | (Answered & { readonly kind: 'gone' })
  | (Answered & { readonly kind: 'refused'; readonly retryAfterMs?: number | undefined })
  | { readonly kind: 'unreachable'; readonly reason: string }
  | { readonly kind: 'blocked'; readonly reason: string; readonly detail: string };

/** The status and the start of the response body, for people who investigate a failure. */
type Answered = { readonly status: number; readonly answer: string };

/** Returns what is recorded about an outcome: status, error, and the start of the body if it was read. */
export function factsOf(outcome: SendOutcome) {
  const httpStatus = 'status' in outcome ? outcome.status : null;
  const failure = 'reason' in outcome ? outcome.reason : `HTTP ${outcome.status}`;
  const error = outcome.kind === 'delivered' ? null : failure;
  return { httpStatus, error, answer: 'answer' in outcome ? outcome.answer : null };
}

export type Sender = {
  readonly send: (delivery: Delivery) => Promise<SendOutcome>;
  readonly close: () => Promise<void>;
};

// Timeout of one attempt. Standard Webhooks 1.0 recommends 15 to 30 s; with a longer timeout, slow receivers
// would occupy the worker.
const totalLimitMs = 15_000;
// Maximum size of a 2xx body that is read so that its connection can be reused. A longer body is not
// worth reading.
const maxAnswerBytes = 64 * 1024;
// Length of the stored excerpt of a response: enough for an error message, not for an HTML page.
const excerptBytes = 2_048;
// Maximum number of connection pools kept open: the receivers that a worker sends to within seconds.
const mostPools = 200;
// Maximum number of connections of an account to a host, regardless of its number of endpoints there:
// enough to send a batch of 10,000 events in seconds without flooding the receiver.
const connectionsPerPool = 16;

/**
 * Makes the webhook sender, with one connection pool for each account and host. It uses the egress proxy if
 * one is configured. It never retries and never follows redirects.
 */
export function createSender(
  policy: UrlPolicy,
  {
    limitMs = totalLimitMs,
    maxPools = mostPools,
    lookups = guardedLookups(policy),
    proxyUrl = '',
  } = {},
  sign = createSigner(),
): Sender {
  const proxy = proxyUrl === '' ? undefined : createEgressProxy(proxyUrl);
  // Maps keep insertion order and each use reinserts the pool, so the first one is the least recently used.
  const pools = new Map<string, Pool>();
  const closing = new Set<Promise<void>>();

  function poolOf(account: string, origin: string): Pool {
    const key = `${account} ${origin}`;
    const open = () => {
      const connect = guardedConnector(policy, lookups(account), proxy?.tunnel);
      return new Pool(origin, { connect, connections: connectionsPerPool });
    };
    const pool = pools.get(key) ?? open();
    pools.delete(key);
    pools.set(key, pool);
    const [oldest] = pools;
    if (pools.size > maxPools && oldest !== undefined) {
      pools.delete(oldest[0]);
      // Closing waits for requests in flight, which the timeout ends after 15 s at most.
      const closed: Promise<void> = oldest[1].close().finally(() => void closing.delete(closed));
      closing.add(closed);
    }
    return pool;
  }

  return {
    async send(delivery) {
      const expected = expectedOfWebhookUrl(delivery.url, policy);
      if (expected !== undefined) {
        const reason = `expected ${expected}`;
        return { kind: 'blocked', reason, detail: reason };
      }
      // Signs before taking a pool, which could be closed while signing is awaited.
      const signed = { ...delivery, header: await sign(delivery) };
      const { origin, pathname, search } = new URL(delivery.url);
      return post(poolOf(delivery.account, origin), pathname + search, signed, limitMs);
    },
    async close() {
      await Promise.all([...closing, ...[...pools.values()].map((pool) => pool.close())]);
      await proxy?.close();
    },
  };
}

async function post(
  pool: Pool,
  path: string,
  delivery: Delivery & { readonly header: string },
  limitMs: number,
): Promise<SendOutcome> {
  try {
    const { statusCode, headers, body } = await pool.request({
      method: 'POST',
      path,
      headers: webhookHeaders(delivery, delivery.header),
      body: delivery.body,
      signal: AbortSignal.timeout(limitMs),
    });
    // The status alone decides. A body that is cut off or never ends does not change the outcome.
    const isDelivered = statusCode >= 200 && statusCode < 300;
    if (isDelivered && delivery.readsAnswer !== true) {
      await body.dump({ limit: maxAnswerBytes });
      return { kind: 'delivered', status: statusCode };
    }
    const answer = await excerptOf(body);
    if (isDelivered) return { kind: 'delivered', status: statusCode, answer };
    if (statusCode === 410) return { kind: 'gone', status: statusCode, answer };
    const retryAfterMs = readRetryAfter(headers['retry-after']);
    return { kind: 'refused', status: statusCode, answer, retryAfterMs };
  } catch (error) {
    if (error instanceof BlockedAddressError) {
      return { kind: 'blocked', reason: error.message, detail: error.detail };
    }
    const reason = networkReason(error);
    if (reason === undefined) throw error;
    return { kind: 'unreachable', reason };
  }
}

/** Reads the start of a response body. If there is more, it is not read and the connection is closed. */
async function excerptOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  try {
    for await (const chunk of body) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes >= excerptBytes) break;
    }
  } catch {
    // The body was cut off or the attempt timed out: the part received so far is the excerpt.
  }
  return readable(Buffer.concat(chunks).subarray(0, excerptBytes));
}

/** Control characters except tabs and line breaks, and characters that change the text direction. */
const unreadable = /(?![\t\n\r])[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu;

/** Decodes bytes to text that is safe for terminals and PostgreSQL. U+FFFD replaces invalid UTF-8. */
function readable(bytes: Uint8Array): string {
  // Stream mode omits a character that is cut off at the end instead of replacing it.
  return new TextDecoder().decode(bytes, { stream: true }).replaceAll(unreadable, '\ufffd');
}

/** Parses Retry-After (RFC 9110, section 10.2.3), which is seconds or a date; undefined if it is neither. */
function readRetryAfter(value: string | string[] | undefined): number | undefined {
  if (typeof value !== 'string') return undefined;
  const waitMs = /^\d{1,10}$/.test(value)
    ? Number.parseInt(value, 10) * 1_000
    : Date.parse(value) - Date.now();
  return Number.isNaN(waitMs) ? undefined : Math.max(waitMs, 0);
}

/** Returns a short reason for a failure of the network or the receiver, or undefined for a bug of ours. */
function networkReason(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if (error.name === 'TimeoutError') return 'timeout';
  // Checked by name: for the most common parse error, the error has no code (undici 7.30).
  if (error.name === 'HTTPParserError') return 'the response was not HTTP';
  if (!('code' in error) || typeof error.code !== 'string') return undefined;
  return error.code.includes('INVALID_ARG') ? undefined : error.code;
}
