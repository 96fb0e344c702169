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

/** A list that its indexes serve takes a few milliseconds. */
const usualMs = 5;

/** As long as a list may take, so that a list after a slow hour of the database waits no longer. */
const longestRestMs = 1_000;

/**
 * The milliseconds that a place of an account stays empty after a list that took so many. What is
 * usual costs nothing. Searches that look through thousands of rows get a tenth of the places' time:
 * those of one account, sent without end, do not fill the processors.
 */
export function restAfterList(tookMs: number): number {
  return Math.min(9 * Math.max(0, tookMs - usualMs), longestRestMs);
}

/**
 * Serves so many requests of an account at a time, until their answers are read and their places
 * have rested. How many may wait is bounded by the account's requests in flight.
 */
export function limitPerAccount(
  places: number,
  restAfter: (tookMs: number) => number = () => 0,
): Koa.Middleware {
  const limit = createKeyedLimit(places);
  return (ctx, next) =>
    new Promise<void>((resolve, reject) => {
      limit(holderOf(ctx).account.id, async () => {
        // Who sent it has left while it waited.
        if (ctx.req.socket.destroyed) ctx.throw(400);
        const startMs = performance.now();
        await next().then(resolve, reject);
        await Promise.all([whenClosed(ctx), delay(restAfter(performance.now() - startMs))]);
      }).catch(reject);
    });
}
