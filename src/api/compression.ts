import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type Koa from 'koa';

/**
 * Minimum size to compress. A smaller body is at most three packets, which arrive as soon as one does. A
 * payout has about 1 KiB.
 */
const minimumBytes = 4 * 1024;

/**
 * Compression level. It shrinks a page of payouts to a fifth; zlib's default level takes twice as long to
 * save another tenth.
 */
const level = 1;

export const compress = promisify<Buffer, { level?: number }, Buffer>(gzip);

/**
 * Compresses responses for clients that ask for it (RFC 9110, 12.5.3), on another thread. Compresses the
 * whole body at once: less memory is held while the client reads, and the Content-Length is known.
 */
export const compressAnswer: Koa.Middleware = async (ctx, next) => {
  await next();
  const { body } = ctx;
  if (!Buffer.isBuffer(body) || body.length < minimumBytes) return;
  if (ctx.res.hasHeader('Content-Encoding') || !acceptsGzip(ctx)) return;
  ctx.body = await compress(body, { level });
  ctx.set('Content-Encoding', 'gzip');
};

/** Whether the client accepts gzip. Adds Vary, so that caches know that the response depends on this. */
export function acceptsGzip(ctx: Koa.Context): boolean {
  ctx.vary('Accept-Encoding');
  return ctx.acceptsEncodings('gzip', 'identity') === 'gzip';
}
