import type Koa from 'koa';
import pLimit, { type LimitFunction } from 'p-limit';
import { holderOf } from './auth.js';

/**
 * Resolves when the answer is read, or when nobody is left to read it: so long it takes room
 * here, whatever its request has been answered with.
 */
export function whenClosed({ res, req }: Koa.Context): Promise<void> {
  if (res.closed || req.socket.destroyed) return Promise.resolve();
  return new Promise((resolve) => res.once('close', () => resolve()));
}

/** Runs work of an account, so much of it at a time; the rest waits for its turn. */
export type AccountShare = <T>(accountId: string, work: () => Promise<T>) => Promise<T>;

/** How many may wait is bounded by the account's requests in flight. */
export function createAccountShare(places: number): AccountShare {
  const limits = new Map<string, LimitFunction>();
  return async (accountId, work) => {
    const limit = limits.get(accountId) ?? pLimit(places);
    limits.set(accountId, limit);
    try {
      return await limit(work);
    } finally {
      if (limit.activeCount + limit.pendingCount === 0) limits.delete(accountId);
    }
  };
}

/** Serves so many requests of an account at a time, until their answers are read. */
export function inTurn(places: number): Koa.Middleware {
  const share = createAccountShare(places);
  return (ctx, next) =>
    new Promise<void>((resolve, reject) => {
      share(holderOf(ctx).account.id, async () => {
        // Who sent it has left while it waited.
        if (ctx.req.socket.destroyed) ctx.throw(400);
        await next();
        resolve();
        await whenClosed(ctx);
      }).catch(reject);
    });
}
