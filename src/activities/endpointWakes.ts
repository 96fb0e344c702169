import type { Pair } from '../db/deliveries.js';
import { wakeEndpoint } from '../temporal/workflowCalls.js';
import type { ActivityDeps } from './deps.js';

/** Each signal costs a workflow task. A first retry is due after four seconds at the least. */
const wakePauseMs = 2_000;

/**
 * Wakes the workflows of endpoints: each at once, and once more after a pause if there was more meanwhile.
 * Beside a receiver that hangs every event would signal a workflow that is at work already.
 */
export function createEndpointWakes({ temporal, log }: Pick<ActivityDeps, 'temporal' | 'log'>) {
  /** Those that were woken just now, and whether there has been more since. */
  const woken = new Map<string, boolean>();
  const wake = async (id: string): Promise<void> => {
    if (woken.has(id)) {
      woken.set(id, true);
      return;
    }
    woken.set(id, false);
    setTimeout(() => void wakeAgain(id), wakePauseMs).unref();
    await wakeEndpoint(temporal, id);
  };
  const wakeAgain = async (id: string): Promise<void> => {
    const isMore = woken.get(id) === true;
    woken.delete(id);
    // What is not woken is overdue for the sweep.
    if (isMore) await wake(id).catch((err: unknown) => log.warn({ err, id }, 'it was not woken'));
  };
  return async (pairs: readonly Pair[]): Promise<void> => {
    for (const id of new Set(pairs.map(({ endpointId }) => endpointId))) await wake(id);
  };
}
