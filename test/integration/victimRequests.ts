import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { Pool } from 'undici';

/** The input of this thread from `victim.ts`: the same requests are sent to each URL. */
export type LoadOptions = {
  readonly urls: readonly string[];
  readonly apiKey: string;
  /** Whether each request opens a new connection. */
  readonly freshConnections: boolean;
};

/** The latencies of an uninvolved customer, in milliseconds. */
export type Served = {
  readonly samples: number;
  /** Requests whose answer was not 200. */
  readonly failed: number;
  readonly p50: number;
  readonly p95: number;
  readonly slowest: number;
};

/** Pause between requests, whether or not the previous one is answered. */
const pauseMs = 25;
/** Timeout of a request; one that takes longer counts with this time. */
const timeoutMs = 30_000;

const warmUpMs = 500;

/** Sends requests until the returned function is called, which returns their latencies. */
function sendSteadily(url: string, { apiKey, freshConnections }: LoadOptions) {
  const pool = new Pool(url, { connections: 40, pipelining: freshConnections ? 0 : 1 });
  const taken: number[] = [];
  const sending: Promise<void>[] = [];
  let failed = 0;
  const send = async () => {
    const startMs = performance.now();
    const status = await pool
      .request({
        method: 'GET',
        path: '/v1/balances',
        headers: { authorization: `Bearer ${apiKey}` },
        signal: AbortSignal.timeout(timeoutMs),
      })
      .then(
        async ({ statusCode, body }) => {
          await body.dump();
          return statusCode;
        },
        () => 0,
      );
    if (status !== 200) failed += 1;
    taken.push(performance.now() - startMs);
  };
  const sends = setInterval(() => sending.push(send()), pauseMs);
  return async (): Promise<Served> => {
    clearInterval(sends);
    await Promise.all(sending);
    await pool.destroy();
    const sorted = taken.sort((a, b) => a - b);
    const at = (share: number) => Math.round(sorted[Math.floor(sorted.length * share)] ?? 0);
    return {
      samples: sorted.length,
      failed,
      p50: at(0.5),
      p95: at(0.95),
      slowest: Math.round(sorted.at(-1) ?? 0),
    };
  };
}

if (parentPort === null) throw new Error('This file is a thread of victim.ts.');
const options: LoadOptions = workerData;
// The first requests to a process take ten times as long as later ones, even without an attack.
const begin = () => options.urls.map((url) => sendSteadily(url, options));
const warmUp = begin();
await delay(warmUpMs);
await Promise.all(warmUp.map((end) => end()));
const ends = begin();
parentPort.postMessage('ready');
await once(parentPort, 'message');
parentPort.postMessage(await Promise.all(ends.map((end) => end())));
