import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import type Router from '@koa/router';
import type Koa from 'koa';
import { apiVersions, defaultApiVersion } from '../contract/versions/index.js';
import { refuse } from '../domain/refusal.js';
import { asksForGzip } from './compression.js';
import { openapiDocument } from './openapi.js';
import { errorsPage, guidePage, referencePage } from './referencePages.js';
import type { Route } from './route.js';
import { answerProblem } from './serveRoute.js';

/** Publishes what describes the API; who reads it needs no key. */
export function addReference(router: Router, routes: readonly Route[]): void {
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
      const expected = `one of ${apiVersions.join(', ')}`;
      const refusals = [refuse('api_version_unknown', { param, expected })];
      return answerProblem(ctx, { refusals });
    }
    ctx.set('Corridor-Version', asked);
    ctx.vary('Corridor-Version');
    publish(ctx, document);
  });
  for (const [path, published] of pages()) {
    router.get(path, (ctx) => {
      ctx.set('Content-Security-Policy', contentPolicy);
      publish(ctx, published);
    });
  }
}

/** Compressed once, for whoever reads it needs no key. */
type Published = Readonly<{ type: string; body: Buffer; packed: Buffer; tag: string }>;

function asPublished(type: string, text: string | Buffer): Published {
  const tag = createHash('sha256').update(text).digest('base64url').slice(0, 22);
  // Bytes are not copied for each connection that waits to be read.
  const body = Buffer.from(text);
  return { type, body, packed: gzipSync(body), tag };
}

const ours = new URL('pages/', import.meta.url);
const swaggerUi = import.meta.resolve('swagger-ui-dist/package.json');

/** What the pages load: all of it comes from here, so that they work offline. */
const loaded = [
  ['page.js', 'text/javascript; charset=utf-8', new URL('page.js', ours)],
  ['page.css', 'text/css; charset=utf-8', new URL('page.css', ours)],
  ['swagger-ui-bundle.js', 'text/javascript', new URL('swagger-ui-bundle.js', swaggerUi)],
  ['swagger-ui.css', 'text/css', new URL('swagger-ui.css', swaggerUi)],
  ['favicon.png', 'image/png', new URL('favicon-32x32.png', swaggerUi)],
] as const;

function pages(): readonly (readonly [path: string, published: Published])[] {
  const html = (body: string) => asPublished('text/html; charset=utf-8', body);
  return [
    ['/docs', html(referencePage())],
    ['/docs/errors', html(errorsPage())],
    ['/docs/guide', html(guidePage())],
    ...loaded.map(
      ([name, type, file]) => [`/docs/${name}`, asPublished(type, readFileSync(file))] as const,
    ),
  ];
}

/** Nothing of another origin is loaded, asked or sent, and no script or style stands in a page. */
const contentPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  // The reference's own icons are in its style sheet.
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/** May be kept, and is asked for again each time, so that a deploy is seen at once. */
function publish(ctx: Koa.Context, { type, body, packed, tag }: Published): void {
  const isPacked = asksForGzip(ctx);
  ctx.set('Cache-Control', 'public, no-cache');
  // Weak: it stands for what is said, packed or not.
  ctx.etag = `W/"${tag}"`;
  ctx.status = 200;
  if (ctx.fresh) {
    ctx.status = 304;
    return;
  }
  if (isPacked) ctx.set('Content-Encoding', 'gzip');
  ctx.body = isPacked ? packed : body;
  ctx.set('Content-Type', type);
}
