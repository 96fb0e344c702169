import { createHmac } from 'node:crypto';
import { Agent, request } from 'undici';
import type { CallbackEvent } from './books.js';

/** Maximum number of events in one callback, the same as transfers in a bulk request. */
const eventsMaximum = 500;
/** Timeout of a callback, after which it is retried. Storing 500 rows takes much less. */
const requestLimitMs = 5_000;
/** Retry backoff: short enough for a restart, rising to what a service under repair can handle. */
const firstPauseMs = 200;
const longestPauseMs = 10_000;

export type CallbackSettings = {
  readonly url: string;
  readonly secret: string;
  /** Logs for developers why a callback was not accepted. */
  readonly log: (message: string) => void;
  /** Called after each 2xx, before the next request. */
  readonly onAcknowledged: (events: readonly CallbackEvent[]) => Promise<void>;
};

export type Callbacks = {
  send(events: readonly CallbackEvent[]): void;
  stop(): Promise<void>;
};

/**
 * Sends events in order, one request at a time, each signed with `bank-signature:
 * t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">`. Retries anything but a 2xx for as long as the process
 * runs, because the bank must report every event; the journal keeps unacknowledged ones over restarts.
 * The queue never holds more than the journal.
 */
export function startCallbacks(settings: CallbackSettings): Callbacks {
  const agent = new Agent({ connections: 1, connect: { timeout: requestLimitMs } });
  const queue: CallbackEvent[] = [];
  let sending: Promise<void> | undefined;
  let isStopped = false;
  let wake = () => {};

  async function drain(): Promise<void> {
    let pauseMs = firstPauseMs;
    while (queue.length > 0 && !isStopped) {
      const batch = nextBatch(queue);
      const problem = await post(settings, agent, batch);
      if (problem === undefined) {
        queue.splice(0, batch.length);
        pauseMs = firstPauseMs;
        await settings.onAcknowledged(batch);
      } else if (!isStopped) {
        settings.log(`${batch.length} callbacks not delivered, retry in ${pauseMs} ms: ${problem}`);
        await pause(pauseMs);
        pauseMs = Math.min(pauseMs * 2, longestPauseMs);
      }
    }
    sending = undefined;
  }

  function pause(pauseMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, pauseMs);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  return {
    send: (events) => {
      queue.push(...events);
      if (queue.length > 0) sending ??= drain();
    },
    stop: async () => {
      isStopped = true;
      wake();
      await agent.destroy();
      await sending;
    },
  };
}

/** Returns the head of the queue, with at most one event per key: a resend goes in a separate request. */
function nextBatch(queue: readonly CallbackEvent[]): readonly CallbackEvent[] {
  const keys = new Set<string>();
  for (const { key } of queue) {
    if (keys.has(key) || keys.size === eventsMaximum) break;
    keys.add(key);
  }
  return queue.slice(0, keys.size);
}

/** Returns undefined if the service accepted the events, otherwise the reason. */
async function post(
  { url, secret }: CallbackSettings,
  dispatcher: Agent,
  events: readonly CallbackEvent[],
): Promise<string | undefined> {
  const body = JSON.stringify({ events });
  const seconds = Math.floor(Date.now() / 1_000);
  const signature = createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex');
  try {
    const response = await request(url, {
      dispatcher,
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'bank-signature': `t=${seconds},v1=${signature}`,
      },
      body,
      signal: AbortSignal.timeout(requestLimitMs),
    });
    // Only the status matters, so a long body is cut off instead of read.
    await response.body.dump({ limit: 64 * 1024 });
    const isTaken = response.statusCode >= 200 && response.statusCode < 300;
    return isTaken ? undefined : `HTTP ${response.statusCode}`;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
