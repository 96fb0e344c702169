import { existsSync, readFileSync } from 'node:fs';

const processorTimes = '/proc/stat';
const hasProcessorTimes = existsSync(processorTimes);

/**
 * Processor time used since the machine started, and the time that would have been used without
 * steal, in ticks. Only Linux reports both.
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
 * Starts a clock that slows down while the host gives this machine's processors to others. Limits
 * measured with it apply to the work done here, and not to that of neighbors.
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
