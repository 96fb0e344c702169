import { createHash, type KeyObject } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import type Router from '@koa/router';
import type Koa from 'koa';
import { apiVersions, defaultApiVersion, versionExpected } from '../contract/versions/index.js';
import { refuse, shortened } from '../domain/refusal.js';
import { publicKeySet } from '../webhooks/signature.js';
import { cached } from './cached.js';
import { acceptsGzip, compress } from './compression.js';
import { openapiDocument } from './openapi.js';
import { docsPages } from './referencePages.js';
import type { Route } from './route.js';
import { answerProblem } from './serveRoute.js';

/** Adds the routes that describe the API: OpenAPI documents, webhook keys and docs. They need no API key. */
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
    // The query takes precedence over the header: a link must show the version that it names.
    const inQuery = new URLSearchParams(ctx.querystring).get('version');
    const requested = inQuery ?? ctx.headers['corridor-version']?.toString() ?? defaultApiVersion;
    const document = documents.get(requested);
    if (document === undefined) {
      const param = inQuery === null ? 'Corridor-Version' : 'version';
      const refusals = [refuse('api_version_unknown', { param, expected: versionExpected })];
      return answerProblem(ctx, { refusals });
    }
    ctx.set('Corridor-Version', requested);
    ctx.vary('Corridor-Version');
    return publish(ctx, document);
  });
  const keys = asPublished('application/json', JSON.stringify(publicKeySet(webhookKeys)));
  router.get('/.well-known/corridor-webhook-keys', (ctx) => publish(ctx, keys, keysCaching));
  const site = docsSite();
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

/** How long receivers may cache the keys. A new key is published for longer than this before it signs. */
const keysCaching = 'max-age=300';

/** A public document. It is compressed once, on the first request: anyone can request it without a key. */
type Published = ReturnType<typeof asPublished>;

function asPublished(type: string, text: string | Buffer) {
  const tag = createHash('sha256').update(text).digest('base64url').slice(0, 22);
  // A buffer, because a string would be copied for every connection whose client reads slowly.
  const body = Buffer.from(text);
  return { type, body, gzipped: cached(() => compress(body, {})), tag };
}

const html = 'text/html; charset=utf-8';
const types: Readonly<Record<string, string>> = {
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Every page and every file that a page loads. All of them come from this host, so the docs work offline. */
function docsSite(): ReadonlyMap<string, () => Published> {
  const folder = new URL('pages/', import.meta.url);
  const pages = docsPages().map(([path, make]) => [path, make, html] as const);
  const files = readdirSync(folder).flatMap((name) => {
    const type = types[extname(name)];
    const read = () => readFileSync(new URL(name, folder));
    return type === undefined ? [] : [[`/docs/${name}`, read, type] as const];
  });
  return new Map(
    [...pages, ...files].map(([path, make, type]) => [
      path,
      cached(() => asPublished(type, make())),
    ]),
  );
}

/**
 * Builds the Content-Security-Policy. Pages load from, connect to and submit to no other origin, and contain
 * no inline scripts. Only the reference may have inline styles, because its renderer writes them at run time.
 */
const contentPolicy = (isReference: boolean) =>
  [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self'${isReference ? " 'unsafe-inline'" : ''}`,
    // The reference's style sheet embeds its icons as data URLs.
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');

/**
 * Sends a document that clients may cache. By default they revalidate it each time, so that a deployment is
 * visible at once.
 */
async function publish(
  ctx: Koa.Context,
  { type, body, gzipped, tag }: Published,
  caching = 'no-cache',
): Promise<void> {
  const isGzipped = acceptsGzip(ctx);
  ctx.set('Cache-Control', `public, ${caching}`);
  // Weak: the tag is the same whether the body is compressed or not.
  ctx.etag = `W/"${tag}"`;
  ctx.status = 200;
  if (ctx.fresh) {
    ctx.status = 304;
    return;
  }
  if (isGzipped) ctx.set('Content-Encoding', 'gzip');
  ctx.body = isGzipped ? await gzipped() : body;
  ctx.set('Content-Type', type);
}
