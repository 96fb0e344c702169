import { setTimeout as delay } from 'node:timers/promises';
import type Koa from 'koa';
import { createKeyedLimit } from '../keyedLimit.js';
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
 * Serves at most so many requests of an account at a time. A request keeps its place until its
 * answer is read and, after expensive work, until the place has rested: see `Answer.restMs`. How many
 * may wait is bounded by the account's requests in flight.
 */
export function limitPerAccount(places: number): Koa.Middleware {
  const limit = createKeyedLimit(places);
  return (ctx, next) =>
    new Promise<void>((resolve, reject) => {
      limit(holderOf(ctx).account.id, async () => {
        // Who sent it has left while it waited.
        if (ctx.req.socket.destroyed) ctx.throw(400);
        await next().then(resolve, reject);
        const restMs: number = ctx.state['restMs'] ?? 0;
        await Promise.all([whenClosed(ctx), restMs > 0 ? delay(restMs) : undefined]);
      }).catch(reject);
    });
}
