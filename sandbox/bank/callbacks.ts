import { createHmac } from 'node:crypto';
import { Agent, request } from 'undici';
import type { CallbackEvent } from './books.js';

/** The most events of one callback: as many as a bulk request has transfers. */
const eventsMaximum = 500;
/** A service that takes longer to store 500 rows is asked again. */
const requestLimitMs = 5_000;
/** From the blink of a restart to what a service under repair can bear. */
const firstPauseMs = 200;
const longestPauseMs = 10_000;

export type CallbackSettings = {
  readonly url: string;
  readonly secret: string;
  /** Takes what a developer should know: why a callback was not taken. */
  readonly log: (message: string) => void;
  /** Called after each 2xx, before the next request. */
  readonly onAcknowledged: (events: readonly CallbackEvent[]) => Promise<void>;
};

export type Callbacks = {
  send(events: readonly CallbackEvent[]): void;
  stop(): Promise<void>;
};

/**
 * Sends events in their order, one request at a time, each signed with `bank-signature:
 * t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">`. What is not answered 2xx is sent again
 * as long as the process lives, without limit of count: the bank has to report, and the
 * journal remembers the debt. The queue holds at most what the journal holds.
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
        settings.log(`${batch.length} callbacks not taken, again in ${pauseMs} ms: ${problem}`);
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

/** The head of the queue up to a second event of one key: a resend is a request of its own. */
function nextBatch(queue: readonly CallbackEvent[]): readonly CallbackEvent[] {
  const keys = new Set<string>();
  for (const { key } of queue) {
    if (keys.has(key) || keys.size === eventsMaximum) break;
    keys.add(key);
  }
  return queue.slice(0, keys.size);
}

/** Undefined when the service has taken the events, else why not. */
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
    // The answer says nothing but its status; a long one is cut off, not read.
    await response.body.dump({ limit: 64 * 1024 });
    const isTaken = response.statusCode >= 200 && response.statusCode < 300;
    return isTaken ? undefined : `HTTP ${response.statusCode}`;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
