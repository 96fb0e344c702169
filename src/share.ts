import pLimit, { type LimitFunction } from 'p-limit';

/** Does work under a key, in its turn. */
export type Queue = <T>(key: string, work: () => Promise<T>) => Promise<T>;

/** The same; undefined, at once, where too much of the same key waits already. */
export type Share = <T>(key: string, work: () => Promise<T>) => Promise<T> | undefined;

/**
 * Does so much work of a key at once, the rest in the order in which it came. What all keys use
 * together is then never held by one of them alone. Each process counts for itself.
 */
export function createShare(atOnce: number): Queue;
export function createShare(atOnce: number, mostWaiting: number): Share;
export function createShare(atOnce: number, mostWaiting = Number.POSITIVE_INFINITY): Share {
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
