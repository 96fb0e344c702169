import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type Koa from 'koa';

/** Shorter is three packets at most, which are as soon there as one; a payout has about 1 KiB. */
const worthBytes = 4 * 1024;

/** A fifth of a page of payouts is left; zlib's usual level takes twice as long for a tenth less. */
const level = 1;

const compress = promisify<Buffer, { level: number }, Buffer>(gzip);

/**
 * Compresses answers for clients that ask for it (RFC 9110, 12.5.3), on another thread and as a
 * whole: what waits for its reader is then the shorter one, with its length known.
 */
export function compressAnswers(): Koa.Middleware {
  return async (ctx, next) => {
    await next();
    const body = bytesOf(ctx.body);
    if (body.length < worthBytes || ctx.res.hasHeader('Content-Encoding')) return;
    if (!asksForGzip(ctx)) return;
    ctx.body = await compress(body, { level });
    ctx.set('Content-Encoding', 'gzip');
  };
}

/** Whether an answer may be compressed; caches learn that the answer to another client may differ. */
export function asksForGzip(ctx: Koa.Context): boolean {
  ctx.vary('Accept-Encoding');
  return ctx.acceptsEncodings('gzip', 'identity') === 'gzip';
}

/** A refusal is an object yet, which Koa would write later; it may list a hundred errors. */
function bytesOf(body: unknown): Buffer {
  if (Buffer.isBuffer(body)) return body;
  return typeof body === 'object' && body !== null
    ? Buffer.from(JSON.stringify(body))
    : Buffer.alloc(0);
}
