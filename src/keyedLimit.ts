import pLimit, { type LimitFunction } from 'p-limit';

/** Runs work for a key as soon as the key's concurrency limit allows. */
export type KeyedLimit = <T>(key: string, work: () => Promise<T>) => Promise<T>;

/** The same, but returns undefined without running the work if the key's queue is full. */
export type BoundedKeyedLimit = <T>(key: string, work: () => Promise<T>) => Promise<T> | undefined;

/**
 * Limits concurrency per key: runs at most `atOnce` tasks of a key at a time and queues the rest in order
 * of arrival, so that no key uses up what all keys share. Each process counts separately.
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
