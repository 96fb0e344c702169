import { readFileSync } from 'node:fs';
import { Pool } from 'undici';
import type { ApiProcess } from '../servers/apiProcess.js';

/** How an uninvolved customer fared: times in milliseconds. */
export type Served = {
  readonly samples: number;
  /** Requests that were not answered 200. */
  readonly failed: number;
  readonly p50: number;
  readonly p95: number;
  readonly slowest: number;
};

export type Figures = {
  /** By the process that was attacked. */
  readonly attacked: Served;
  /** By another one on the same machine and database: what the machine alone makes of it. */
  readonly control: Served;
  /** The largest growth of the attacked one's memory that was seen, in megabytes. */
  readonly grownMb: number;
  /** Of the time that this took, how much of a processor the attacked one used. */
  readonly processor: number;
};

/** A request every so often, whether or not the one before is answered. */
const pauseMs = 25;
/** A request that takes longer counts with this time. */
const patienceMs = 30_000;

/**
 * Sends an ordinary read of one customer at fixed moments to both processes while `work` runs,
 * so that what holds one of them up for a second holds up forty requests.
 */
export async function watchVictim(
  { attacked, control }: { readonly attacked: ApiProcess; readonly control: ApiProcess },
  apiKey: string,
  work: () => Promise<unknown>,
  freshConnections = false,
): Promise<Figures> {
  const before = attacked.memoryBytes();
  let most = before;
  const look = () => {
    most = Math.max(most, attacked.memoryBytes());
  };
  const looks = setInterval(look, 100);
  const startMs = performance.now();
  const startProcessorMs = processorMs(attacked);
  const ends = [attacked, control].map((api) => askSteadily(api.url, apiKey, freshConnections));
  try {
    await work();
  } finally {
    clearInterval(looks);
  }
  const [ofAttacked, ofControl] = await Promise.all(ends.map((end) => end()));
  look();
  const used = (processorMs(attacked) - startProcessorMs) / (performance.now() - startMs);
  if (ofAttacked === undefined || ofControl === undefined) throw new Error('Nobody was asked.');
  const grownMb = Math.round((most - before) / 1024 / 1024);
  const processor = Math.round(used * 100) / 100;
  return { attacked: ofAttacked, control: ofControl, grownMb, processor };
}

/** The processor time that a process has used (Linux counts it in hundredths of a second). */
function processorMs({ part }: ApiProcess): number {
  const [, fields = ''] = /\) (.*)$/s.exec(readFileSync(`/proc/${part.pid}/stat`, 'utf8')) ?? [];
  const [user = '', system = ''] = fields.split(' ').slice(11, 13);
  return (Number.parseInt(user, 10) + Number.parseInt(system, 10)) * 10;
}

/** Asks until it is told to end, and then tells how it went. */
function askSteadily(url: string, apiKey: string, freshConnections: boolean) {
  const pool = new Pool(url, { connections: 40, pipelining: freshConnections ? 0 : 1 });
  const taken: number[] = [];
  const asking: Promise<void>[] = [];
  let failed = 0;
  const ask = async () => {
    const startMs = performance.now();
    const status = await pool
      .request({
        method: 'GET',
        path: '/v1/balances',
        headers: { authorization: `Bearer ${apiKey}` },
        signal: AbortSignal.timeout(patienceMs),
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
  const asks = setInterval(() => asking.push(ask()), pauseMs);
  return async (): Promise<Served> => {
    clearInterval(asks);
    await Promise.all(asking);
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
