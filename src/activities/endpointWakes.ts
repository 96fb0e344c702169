import type { Pair } from '../db/deliveries.js';
import { wakeEndpoint } from '../temporal/workflowCalls.js';
import type { ActivityDeps } from './deps.js';

/** Minimum pause between two signals: each costs a workflow task, and no retry is due before 4 s. */
const wakePauseMs = 2_000;

/**
 * Wakes endpoints' workflows: each at once, and once more after a pause if more came in meanwhile.
 * Otherwise, while a receiver hangs, every event would signal a workflow that is already working.
 */
export function createEndpointWakes({ temporal, log }: Pick<ActivityDeps, 'temporal' | 'log'>) {
  /** Endpoints woken within the last pause, and whether more came in for them since. */
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
    // If this fails, the deliveries become overdue and the sweep wakes the workflow.
    if (isMore) await wake(id).catch((err: unknown) => log.warn({ err, id }, 'wake-up failed'));
  };
  return async (pairs: readonly Pick<Pair, 'endpointId'>[]): Promise<void> => {
    for (const id of new Set(pairs.map(({ endpointId }) => endpointId))) await wake(id);
  };
}
