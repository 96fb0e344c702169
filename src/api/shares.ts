import type Koa from 'koa';
import { createShare } from '../share.js';
import { holderOf } from './auth.js';

/**
 * Resolves when the answer is read, or when its reader is gone: so long it takes room
 * here, whatever its request has been answered with.
 */
export function whenClosed({ res, req }: Koa.Context): Promise<void> {
  if (res.closed || req.socket.destroyed) return Promise.resolve();
  return new Promise((resolve) => res.once('close', () => resolve()));
}

/**
 * Serves so many requests of an account at a time, until their answers are read. How many may wait
 * is bounded by the account's requests in flight.
 */
export function inTurn(places: number): Koa.Middleware {
  const share = createShare(places);
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
