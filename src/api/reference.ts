import { createHash, type KeyObject } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type Router from '@koa/router';
import type Koa from 'koa';
import { apiVersions, defaultApiVersion, versionExpected } from '../contract/versions/index.js';
import { refuse, shortened } from '../domain/refusal.js';
import { publicKeySet } from '../webhooks/signature.js';
import { asksForGzip } from './compression.js';
import { openapiDocument } from './openapi.js';
import { docsPages } from './referencePages.js';
import type { Route } from './route.js';
import { answerProblem } from './serveRoute.js';

/** Publishes what describes the API; who reads it needs no key. */
export function addReference(
  router: Router,
  routes: readonly Route[],
  webhookKeys: readonly KeyObject[],
): void {
  const documents = new Map<string, Published>(
    apiVersions.map((version) => {
      const text = JSON.stringify(openapiDocument(routes, version));
      return [version, asPublished('application/json', text)];
    }),
  );
  router.get('/openapi.json', (ctx) => {
    // The query decides before the header: a link must show what it names.
    const inQuery = new URLSearchParams(ctx.querystring).get('version');
    const inHeader = ctx.headers['corridor-version']?.toString();
    const asked = inQuery ?? inHeader ?? defaultApiVersion;
    const document = documents.get(asked);
    if (document === undefined) {
      const param = inQuery === null ? 'Corridor-Version' : 'version';
      const refusals = [refuse('api_version_unknown', { param, expected: versionExpected })];
      return answerProblem(ctx, { refusals });
    }
    ctx.set('Corridor-Version', asked);
    ctx.vary('Corridor-Version');
    return publish(ctx, document);
  });
  const keys = asPublished('application/json', JSON.stringify(publicKeySet(webhookKeys)));
  router.get('/.well-known/corridor-webhook-keys', (ctx) => publish(ctx, keys, keysForSeconds));
  const site = siteOf();
  router.get(['/docs', '/docs/', '/docs/:name'], (ctx) => {
    const isOldReference = ctx.path === '/docs' && ctx.querystring.startsWith('version=');
    if (isOldReference) return ctx.redirect(`/docs/reference${ctx.search}`);
    if (ctx.path === '/docs/guide') return ctx.redirect('/docs');
    const published = site.get(ctx.path)?.();
    if (published === undefined) {
      const received = shortened(`${ctx.method} ${ctx.path}`, 200);
      const expected = 'the path of a page, such as /docs';
      return answerProblem(ctx, { refusals: [refuse('route_not_found', { expected, received })] });
    }
    ctx.set('Content-Security-Policy', contentPolicy(ctx.path === '/docs/reference'));
    return publish(ctx, published);
  });
}

/** Receivers may keep the keys for so long: a new key is published for longer before it signs. */
const keysForSeconds = 300;

/** Compressed once, on the first request: reading it needs no key. */
type Published = Readonly<{
  type: string;
  body: Buffer;
  packed: () => Promise<Buffer>;
  tag: string;
}>;

function asPublished(type: string, text: string | Buffer): Published {
  const tag = createHash('sha256').update(text).digest('base64url').slice(0, 22);
  // Bytes are not copied for each connection that waits to be read.
  const body = Buffer.from(text);
  return { type, body, packed: once(() => promisify(gzip)(body)), tag };
}

function once<T extends object>(make: () => T): () => T {
  let made: T | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

const html = 'text/html; charset=utf-8';
const types: Readonly<Record<string, string>> = {
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Every page with all that it loads, which comes from here so that it works offline. */
function siteOf(): ReadonlyMap<string, () => Published> {
  const folder = new URL('pages/', import.meta.url);
  const pages = docsPages().map(([path, make]) => [path, make, html] as const);
  const files = readdirSync(folder).flatMap((name) => {
    const type = types[extname(name)];
    const read = () => readFileSync(new URL(name, folder));
    return type === undefined ? [] : [[`/docs/${name}`, read, type] as const];
  });
  return new Map(
    [...pages, ...files].map(([path, make, type]) => [path, once(() => asPublished(type, make()))]),
  );
}

/**
 * Nothing of another origin is loaded, asked or sent, and no script stands in a page. Styles do in
 * the reference alone: its renderer writes them at run time.
 */
const contentPolicy = (isReference: boolean) =>
  [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self'${isReference ? " 'unsafe-inline'" : ''}`,
    // Icons of the reference stand in its style sheet.
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');

/** May be kept. Unless that is said to be for a while, it is asked for again: a deploy is seen at once. */
async function publish(
  ctx: Koa.Context,
  { type, body, packed, tag }: Published,
  seconds?: number,
): Promise<void> {
  const isPacked = asksForGzip(ctx);
  ctx.set(
    'Cache-Control',
    seconds === undefined ? 'public, no-cache' : `public, max-age=${seconds}`,
  );
  // Weak: it stands for what is said, packed or not.
  ctx.etag = `W/"${tag}"`;
  ctx.status = 200;
  if (ctx.fresh) {
    ctx.status = 304;
    return;
  }
  if (isPacked) ctx.set('Content-Encoding', 'gzip');
  ctx.body = isPacked ? await packed() : body;
  ctx.set('Content-Type', type);
}
