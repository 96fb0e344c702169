import { existsSync, readFileSync } from 'node:fs';

const processorTimes = '/proc/stat';
const hasProcessorTimes = existsSync(processorTimes);

/**
 * What the processors have done since the machine started, and what they would have done had its
 * host not served others meanwhile, in ticks. Only Linux says so.
 */
function processorTicks(): { readonly done: number; readonly wanted: number } {
  if (!hasProcessorTimes) return { done: 0, wanted: 0 };
  const [line = ''] = readFileSync(processorTimes, 'utf8').split('\n', 1);
  const [user = 0, nice = 0, system = 0, , , irq = 0, softIrq = 0, stolen = 0] = line
    .split(/\s+/)
    .slice(1)
    .map(Number);
  const done = user + nice + system + irq + softIrq;
  return { done, wanted: done + stolen };
}

/**
 * A clock that runs slower while the host gives the machine's processors to others: a limit in its
 * milliseconds is one for what runs here, and not for its neighbors.
 */
export function startStopwatch(): () => number {
  const startedMs = performance.now();
  const before = processorTicks();
  return () => {
    const now = processorTicks();
    const wanted = now.wanted - before.wanted;
    const share = wanted === 0 ? 1 : (now.done - before.done) / wanted;
    return (performance.now() - startedMs) * share;
  };
}
