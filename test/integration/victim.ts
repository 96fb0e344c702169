import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { ApiProcess } from '../servers/apiProcess.js';
import type { LoadOptions, Served } from './victimRequests.js';

export type Figures = {
  /** Latencies of the attacked process. */
  readonly attacked: Served;
  /** Latencies of another process on the same machine and database, which show the machine's own effect. */
  readonly control: Served;
  /** The largest observed growth of the attacked process's memory, in megabytes. */
  readonly grownMb: number;
  /** The share of one processor that the attacked process used during this time. */
  readonly processor: number;
};

/**
 * While `work` runs, sends an ordinary read of one customer to both processes at fixed times, so that a
 * stall of one second delays forty requests. A separate thread sends and times them: the attack runs
 * in this one, and must not count as the victim's latency.
 */
export async function watchVictim(
  { attacked, control }: { readonly attacked: ApiProcess; readonly control: ApiProcess },
  apiKey: string,
  work: () => Promise<unknown>,
  freshConnections = false,
): Promise<Figures> {
  const before = attacked.memoryBytes();
  let most = before;
  const sample = () => {
    most = Math.max(most, attacked.memoryBytes());
  };
  const sampling = setInterval(sample, 100);
  const startMs = performance.now();
  const startProcessorMs = processorMs(attacked);
  const options: LoadOptions = { urls: [attacked.url, control.url], apiKey, freshConnections };
  const thread = new Worker(new URL('./victimRequests.ts', import.meta.url), {
    workerData: options,
  });
  // If the thread fails, these waits reject.
  await once(thread, 'message');
  const attack = async () => {
    await work().finally(() => clearInterval(sampling));
    thread.postMessage('end');
  };
  const answered: Promise<Served[][]> = once(thread, 'message');
  const [[served]] = await Promise.all([answered, attack()]);
  const [ofAttacked, ofControl] = served ?? [];
  sample();
  const used = (processorMs(attacked) - startProcessorMs) / (performance.now() - startMs);
  if (ofAttacked === undefined || ofControl === undefined)
    throw new Error('The thread sent no latencies.');
  const grownMb = Math.round((most - before) / 1024 / 1024);
  const processor = Math.round(used * 100) / 100;
  return { attacked: ofAttacked, control: ofControl, grownMb, processor };
}

/** The processor time that a process has used (Linux counts hundredths of a second). */
function processorMs({ part }: ApiProcess): number {
  const [, fields = ''] = /\) (.*)$/s.exec(readFileSync(`/proc/${part.pid}/stat`, 'utf8')) ?? [];
  const [user = '', system = ''] = fields.split(' ').slice(11, 13);
  return (Number.parseInt(user, 10) + Number.parseInt(system, 10)) * 10;
}
