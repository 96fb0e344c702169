import { setTimeout as delay } from 'node:timers/promises';
import type { Database } from '../db/client.js';
import { lastSequences } from '../db/events.js';

/** An event is answered well within a second, for five statements a second that take 0.1 ms. */
const lookEveryMs = 200;

type Position = { readonly accountId: string; readonly after: bigint };

export type FeedWaits = ReturnType<typeof createFeedWaits>;

/**
 * Lets requests wait for events that are not there yet. One statement asks for all that wait in this
 * process, so they cost no more than one does, and nothing while none waits. A notification of PostgreSQL
 * would come sooner, but all commits that notify queue for one lock, and batches would pay for it.
 */
export function createFeedWaits(database: Database) {
  const waiting = new Map<() => void, Position>();
  let isLooking = false;
  let isClosed = false;
  const end = (isOver: (position: Position) => boolean) => {
    for (const [resolve, position] of waiting) if (isOver(position)) resolve();
  };
  const look = async (positions: readonly Position[]) => {
    const accounts = new Set(positions.map(({ accountId }) => accountId));
    const last = await lastSequences(database, [...accounts]);
    return ({ accountId, after }: Position) => (last.get(accountId) ?? 0n) > after;
  };
  const lookOn = async () => {
    // Those that wait are the limit of the loop: each of them leaves after 30 s at most.
    while (waiting.size > 0) {
      // Where the database cannot say, they are let go: what they read next says why.
      end(await look([...waiting.values()]).catch(() => () => true));
      await delay(lookEveryMs);
    }
    isLooking = false;
  };
  return {
    /** Resolves when an event follows the position, after `waitMs`, or when the caller has gone. */
    until: async (position: Position, waitMs: number, gone: AbortSignal): Promise<void> => {
      const isThere = await look([position]);
      if (isThere(position) || isClosed || gone.aborted) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      waiting.set(resolve, position);
      const timer = setTimeout(resolve, waitMs);
      gone.addEventListener('abort', () => resolve());
      if (!isLooking) void lookOn();
      isLooking = true;
      await promise;
      clearTimeout(timer);
      waiting.delete(resolve);
    },
    /** From now on nothing waits: a process that ends answers at once. */
    close: (): void => {
      isClosed = true;
      end(() => true);
    },
  };
}
