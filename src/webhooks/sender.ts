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

/** One attempt to deliver one event. */
export type Delivery = Message & {
  /** Who shares a host with a slow receiver of somebody else does not share its connections. */
  readonly account: string;
  readonly url: string;
  /** Also of an answer that is 2xx it is wanted how it begins. */
  readonly readsAnswer?: boolean;
};

/**
 * What came of one attempt: `delivered` is 2xx and nothing else, `gone` is 410, and
 * `blocked` is our own policy, by which nothing was sent.
 */
export type SendOutcome =
  | { readonly kind: 'delivered'; readonly status: number }
  | (Answered & { readonly kind: 'delivered' })
  | (Answered & { readonly kind: 'gone' })
  | (Answered & { readonly kind: 'refused'; readonly retryAfterMs?: number })
  | { readonly kind: 'unreachable'; readonly reason: string }
  | { readonly kind: 'blocked'; readonly reason: string; readonly detail: string };

/** The status, and how the body began: for people who look for the reason of a failure. */
type Answered = { readonly status: number; readonly answer: string };

/** What is recorded of an outcome: the reason of a failure, and how the body began where it was read. */
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

// Standard Webhooks 1.0 advises 15 to 30 s; longer would let slow receivers fill the worker.
const totalLimitMs = 15_000;
// An answer is read so that its connection can be used again; a longer one is not worth it.
const maxAnswerBytes = 64 * 1024;
// The part of a failed answer that is kept: an error message fits, a page of HTML does not.
const excerptBytes = 2_048;
// Receivers with their connections kept open, which a worker sends to within seconds.
const mostPools = 200;
// Of an account to a host, however many endpoints it has there: enough for a batch of 10,000
// events to go out in seconds, and no flood.
const connectionsPerPool = 16;

/**
 * Makes the sender of webhooks, with one pool of connections for each account and host, through the
 * egress proxy if there is one. It never retries and never follows a redirect.
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
  // A map keeps the order of insertion: the first is the one not used for longest.
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
      // Closing waits for the requests under way, which the limit ends in 15 s at most.
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
      // Before there is a pool, which might be closed meanwhile.
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
    // The status is the receiver's word: a body that breaks off or never ends takes nothing back.
    const isDelivered = statusCode >= 200 && statusCode < 300;
    if (isDelivered && delivery.readsAnswer !== true) {
      await body.dump({ limit: maxAnswerBytes });
      return { kind: 'delivered', status: statusCode };
    }
    const answer = await excerptOf(body);
    if (isDelivered) return { kind: 'delivered', status: statusCode, answer };
    return failureOf(statusCode, headers['retry-after'], answer);
  } catch (error) {
    if (error instanceof BlockedAddressError) {
      return { kind: 'blocked', reason: error.message, detail: error.detail };
    }
    const reason = networkReason(error);
    if (reason === undefined) throw error;
    return { kind: 'unreachable', reason };
  }
}

function failureOf(
  status: number,
  retryAfter: string | string[] | undefined,
  answer: string,
): SendOutcome {
  if (status === 410) return { kind: 'gone', status, answer };
  const retryAfterMs = typeof retryAfter === 'string' ? readRetryAfter(retryAfter) : undefined;
  return {
    kind: 'refused',
    status,
    answer,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  };
}

/** How a body begins. Its rest is not read: the connection is closed when there is more. */
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
    // It broke off, or the time is over: what has come is what there is to show.
  }
  return readable(Buffer.concat(chunks).subarray(0, excerptBytes));
}

/** Control characters but tabs and line breaks, and those that change the direction of a text. */
const unreadable = /(?![\t\n\r])[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu;

/** Bytes as text that any terminal and PostgreSQL take: U+FFFD in place of what is not UTF-8. */
function readable(bytes: Uint8Array): string {
  // As a stream: of a character that is cut off at the end nothing is shown.
  return new TextDecoder().decode(bytes, { stream: true }).replaceAll(unreadable, '\ufffd');
}

/** Retry-After (RFC 9110, section 10.2.3): seconds or a date; undefined if it is neither. */
function readRetryAfter(value: string): number | undefined {
  const waitMs = /^\d{1,10}$/.test(value)
    ? Number.parseInt(value, 10) * 1_000
    : Date.parse(value) - Date.now();
  return Number.isNaN(waitMs) ? undefined : Math.max(waitMs, 0);
}

/** A short reason for what networks and receivers do; undefined for our own mistakes. */
function networkReason(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if (error.name === 'TimeoutError') return 'timeout';
  // Its code is undefined for the most usual mistake of all (undici 7.30).
  if (error.name === 'HTTPParserError') return 'the response was not HTTP';
  if (!('code' in error) || typeof error.code !== 'string') return undefined;
  return error.code.includes('INVALID_ARG') ? undefined : error.code;
}
