import pLimit, { type LimitFunction } from 'p-limit';

/** Runs work under a key as soon as the limit of the key allows it. */
export type KeyedLimit = <T>(key: string, work: () => Promise<T>) => Promise<T>;

/** The same; returns undefined, without running it, if too much of the key waits already. */
export type BoundedKeyedLimit = <T>(key: string, work: () => Promise<T>) => Promise<T> | undefined;

/**
 * Runs at most `atOnce` pieces of work of a key at a time, the rest in order of arrival, so that no
 * key takes all of what the keys use together. Each process counts for itself.
 */
export function createKeyedLimit(atOnce: number): KeyedLimit;
export function createKeyedLimit(atOnce: number, mostWaiting: number): BoundedKeyedLimit;
export function createKeyedLimit(
  atOnce: number,
  mostWaiting = Number.POSITIVE_INFINITY,
): BoundedKeyedLimit {
  const limits = new Map<string, LimitFunction>();
  return (key, work) => {
    const limit = limits.get(key) ?? pLimit(atOnce);
    if (limit.activeCount >= atOnce && limit.pendingCount >= mostWaiting) return undefined;
    limits.set(key, limit);
    const forget = () => {
      if (limit.activeCount + limit.pendingCount === 0) limits.delete(key);
    };
    const done = limit(work);
    done.then(forget, forget);
    return done;
  };
}
