import { setTimeout as delay } from 'node:timers/promises';
import type { Database } from '../db/client.js';
import { lastSequences } from '../db/events.js';

/**
 * Pause between two polls. An event is noticed well within a second, at a cost of five statements a second
 * that take 0.1 ms each.
 */
const pollPauseMs = 200;

type Position = { readonly accountId: string; readonly after: bigint };

export type FeedWaits = ReturnType<typeof createFeedWaits>;

/**
 * Lets requests wait for future events. One statement polls for all requests that wait in this process, so
 * many cost no more than one, and there are no polls while none waits. A PostgreSQL notification would arrive
 * sooner, but all commits that notify queue for one lock, which would slow down batches.
 */
export function createFeedWaits(database: Database) {
  const waiting = new Map<() => void, Position>();
  let isPolling = false;
  let isClosed = false;
  const end = (isOver: (position: Position) => boolean) => {
    for (const [resolve, position] of waiting) if (isOver(position)) resolve();
  };
  const poll = async (positions: readonly Position[]) => {
    const accounts = new Set(positions.map(({ accountId }) => accountId));
    const last = await lastSequences(database, [...accounts]);
    return ({ accountId, after }: Position) => (last.get(accountId) ?? 0n) > after;
  };
  const pollWhileWaiting = async () => {
    // The loop ends with the last waiting request, and each one waits for at most 30 s.
    while (waiting.size > 0) {
      // If the poll fails, all waiting requests continue: their next read reports the error.
      end(await poll([...waiting.values()]).catch(() => () => true));
      await delay(pollPauseMs);
    }
    isPolling = false;
  };
  return {
    /** Resolves when an event follows the position, after `waitMs`, or when the caller has disconnected. */
    until: async (position: Position, waitMs: number, signal: AbortSignal): Promise<void> => {
      const isThere = await poll([position]);
      if (isThere(position) || isClosed || signal.aborted) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      waiting.set(resolve, position);
      const timer = setTimeout(resolve, waitMs);
      signal.addEventListener('abort', () => resolve());
      if (!isPolling) void pollWhileWaiting();
      isPolling = true;
      await promise;
      clearTimeout(timer);
      waiting.delete(resolve);
    },
    /** Ends all waits and lets nothing wait any more, because the process is stopping. */
    close: (): void => {
      isClosed = true;
      end(() => true);
    },
  };
}
