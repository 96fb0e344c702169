import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { ApiProcess } from '../servers/apiProcess.js';
import type { Asked, Served } from './victimRequests.js';

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

/**
 * Sends an ordinary read of one customer at fixed moments to both processes while `work` runs,
 * so that what holds one of them up for a second holds up forty requests. A thread of its own sends
 * and times them: the attack is sent from this one, and its work is not the victim's time.
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
  const asked: Asked = { urls: [attacked.url, control.url], apiKey, freshConnections };
  const thread = new Worker(new URL('./victimRequests.ts', import.meta.url), { workerData: asked });
  // A thread that fails rejects these.
  await once(thread, 'message');
  const attack = async () => {
    await work().finally(() => clearInterval(looks));
    thread.postMessage('end');
  };
  const answered: Promise<Served[][]> = once(thread, 'message');
  const [[served]] = await Promise.all([answered, attack()]);
  const [ofAttacked, ofControl] = served ?? [];
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
