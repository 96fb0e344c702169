import { createHash } from 'node:crypto';
import type Router from '@koa/router';
import type Koa from 'koa';
import {
  type ApiVersion,
  apiVersions,
  defaultApiVersion,
  isApiVersion,
} from '../contract/versions/index.js';
import { refuse } from '../domain/refusal.js';
import { openapiDocument } from './openapi.js';
import type { Route } from './route.js';
import { answerProblem } from './serve.js';

/** Publishes what describes the API; who reads it needs no key. */
export function addReference(router: Router, routes: readonly Route[]): void {
  const documents = new Map(
    apiVersions.map((version) => [version, asPublished(openapiDocument(routes, version))]),
  );
  router.get('/openapi.json', (ctx) => {
    const version = askedVersion(ctx);
    const document = version === undefined ? undefined : documents.get(version);
    if (version === undefined || document === undefined) return refuseVersion(ctx);
    ctx.set('Corridor-Version', version);
    ctx.set('Vary', 'Corridor-Version');
    publish(ctx, document);
  });
}

type Published = { readonly text: string; readonly tag: string };

function asPublished(document: object): Published {
  const text = JSON.stringify(document);
  return { text, tag: createHash('sha256').update(text).digest('base64url').slice(0, 22) };
}

/** May be kept, and is asked for again each time, so that a deploy is seen at once. */
function publish(ctx: Koa.Context, { text, tag }: Published): void {
  ctx.set('Cache-Control', 'public, no-cache');
  ctx.etag = tag;
  ctx.status = 200;
  ctx.type = 'application/json';
  ctx.body = text;
  // Koa leaves the body out of a 304 itself.
  if (ctx.fresh) ctx.status = 304;
}

/** The query decides before the header: a link must show what it names. */
function askedVersion(ctx: Koa.Context): ApiVersion | undefined {
  const query = new URLSearchParams(ctx.querystring).get('version');
  const asked = query ?? (ctx.get('Corridor-Version') || defaultApiVersion);
  return isApiVersion(asked) ? asked : undefined;
}

function refuseVersion(ctx: Koa.Context): void {
  const inQuery = new URLSearchParams(ctx.querystring).has('version');
  const param = inQuery ? 'version' : 'Corridor-Version';
  const expected = `one of ${apiVersions.join(', ')}`;
  answerProblem(ctx, { refusals: [refuse('api_version_unknown', { param, expected })] });
}
