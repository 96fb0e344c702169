import { setTimeout as delay } from 'node:timers/promises';
import Router from '@koa/router';
import Koa from 'koa';
import { type KeyHolder, recordUse } from '../db/apiKeys.js';
import { hasSqlState, isOutage } from '../db/client.js';
import { newId } from '../db/id.js';
import { findKeys } from '../db/idempotency.js';
import { refuseState } from '../domain/accountState.js';
import { isRefusal, type Refusal, refuse, shortened } from '../domain/refusal.js';
import { createKeyedLimit } from '../keyedLimit.js';
import { withoutSecrets } from '../log.js';
import { observe } from '../metrics.js';
import { traceRequest } from '../spans.js';
import { everyAnswerHeaders } from './answerHeaders.js';
import { createAuthenticator, holderOf, scopeMissing } from './auth.js';
import { inNetworks } from './clientAddress.js';
import { compressAnswer } from './compression.js';
import { trackAccountConnections } from './connections.js';
import { alternatives } from './decode.js';
import { readIdempotencyKey } from './idempotency.js';
import { addReference } from './reference.js';
import { type ApiDeps, isList, type Route, refused, scopesReaching, sendsMoney } from './route.js';
import { accountRoutes } from './routes/account.js';
import { balanceRoutes } from './routes/balances.js';
import { batchRoutes } from './routes/batches.js';
import { beneficiaryRoutes } from './routes/beneficiaries.js';
import { calculationRoutes } from './routes/calculations.js';
import { corridorRoutes } from './routes/corridors.js';
import { deliveryRoutes } from './routes/deliveries.js';
import { eventRoutes } from './routes/events.js';
import { payoutRoutes } from './routes/payouts.js';
import { quoteRoutes } from './routes/quotes.js';
import { receiveCallback } from './routes/railCallbacks.js';
import { webhookEndpointRoutes } from './routes/webhookEndpoints.js';
import {
  answerDelayed,
  answerProblem,
  bodyLimitOf,
  chargeBytes,
  holdForFeed,
  serve,
  setVersionHeaders,
  weigh,
} from './serveRoute.js';

/** All routes for integrators. */
export const routes: readonly Route[] = [
  ...quoteRoutes,
  ...calculationRoutes,
  ...payoutRoutes,
  ...batchRoutes,
  ...beneficiaryRoutes,
  ...balanceRoutes,
  ...webhookEndpointRoutes,
  ...eventRoutes,
  ...deliveryRoutes,
  ...corridorRoutes,
  ...accountRoutes,
];

/** Maximum number of lists that are read for an account at a time: a quarter of the connections for lists. */
const listsAtOnce = 2;

/** Maximum number of batches read and validated for an account at a time: each may hold 8 MiB and more. */
const batchesAtOnce = 2;

/**
 * Maximum number of writes for an account at a time: about a third of the default pool of 16 connections.
 * Requests that wait for each other's key must not occupy all of them.
 */
const writesAtOnce = 6;

/** Creates the application without a port, so that the caller chooses where it listens. */
export function createApp(parts: Omit<ApiDeps, 'writes'>): Koa {
  const deps = { ...parts, writes: createKeyedLimit(writesAtOnce) };
  const app = new Koa();
  // Only one spelling per route, because limits, keys and authentication depend on the path.
  const router = new Router({ sensitive: true, strict: true });
  app.use(traceIntegrators);
  app.use(describeAnswer(deps));
  app.use(answerFailures(deps));
  app.use(compressAnswer);
  app.use(admit(deps));
  const [lists, batches] = [limitPerAccount(listsAtOnce), limitPerAccount(batchesAtOnce)];
  for (const route of routes) {
    const places = isList(route) ? [lists] : route.acceptsLineFormats === true ? [batches] : [];
    const limits = [...(route.feedPosition ? [holdForFeed(deps, route)] : []), ...places];
    router[route.method](
      ...([route.path, requireRights(deps, route), weigh(deps, route), ...limits] as const),
      (ctx) => serve(deps, route, ctx),
    );
  }
  addReference(router, routes, parts.webhookKeys);
  router.post('/rails/:rail/callbacks', receiveCallback(deps));
  router.get('/livez', (ctx) => {
    ctx.body = { status: 'live' };
  });
  app.use(router.routes());
  app.use((ctx) => answerUnknownRoute(ctx, router));
  return app;
}

/** Traces each request of an integrator, but no callbacks of the bank: a batch has thousands of them. */
const traceIntegrators: Koa.Middleware = (ctx, next) => {
  if (!ctx.path.startsWith('/v1/')) return next();
  return traceRequest(ctx.get('traceparent'), async (span) => {
    await next();
    const { method, status } = ctx;
    const route = String(ctx['_matchedRoute'] ?? 'none');
    const holder: KeyHolder | undefined = ctx.state['holder'];
    span.updateName(`${method} ${route}`).setAttributes({
      ...{ 'http.request.method': method, 'http.route': route },
      'http.response.status_code': status,
      ...{ ...ctx.state['object'], request: ctx.state['requestId'] },
      ...(holder && { account: holder.account.id }),
    });
  });
};

/** Sets the headers of every response, and logs one line for it. */
function describeAnswer(deps: ApiDeps): Koa.Middleware {
  return async (ctx, next) => {
    const startedMs = performance.now();
    const requestId = newId('request');
    ctx.state['requestId'] = requestId;
    ctx.set(everyAnswerHeaders(requestId));
    await next();
    const route = String(ctx['_matchedRoute'] ?? 'none');
    const seconds = (performance.now() - startedMs) / 1000;
    const { method, status } = ctx;
    const holder: KeyHolder | undefined = ctx.state['holder'];
    // Anybody can ask for a currency without a rate. That must not look like a failure of the service.
    const hasNoRate = status === 503 && ctx.state['code'] === 'rate_unavailable';
    const answered = hasNoRate ? '503-rate' : String(status);
    observe('http_request_seconds', { route, method, status: answered }, seconds);
    deps.log.info(
      {
        request: requestId,
        account: holder?.account.id,
        ...ctx.state['object'],
        key_id: holder?.keyId,
        address: deps.proxies.clientOf(ctx.req),
        method,
        // A path may contain anything, and be as long as all headers together.
        path: withoutSecrets(ctx.path.slice(0, 200)),
        status,
        code: ctx.state['code'],
        ms: Math.round(seconds * 1000),
      },
      'answered',
    );
  };
}

/** The only place that turns a thrown error into a response. The text of the error stays in the log. */
function answerFailures(deps: ApiDeps): Koa.Middleware {
  return async (ctx, next) => {
    try {
      await next();
    } catch (error) {
      const refusal = refusalOfThrown(error, ctx.path);
      const announced = ctx.request.length ?? 0;
      if (ctx.state['holder'] !== undefined) chargeBytes(deps, ctx, readOf(error, ctx) - announced);
      if (refusal.code === 'internal_error' || refusal.code === 'service_unavailable') {
        const { requestId: request, object } = ctx.state;
        deps.log.error({ err: error, request, ...object }, 'a request failed');
      }
      answerProblem(ctx, { refusals: [refusal], object: ctx.state['object'] });
      abandonBody(ctx);
    }
  };
}

/**
 * Closes the connection after the response if the body was not fully read: it would block the next request.
 */
function abandonBody(ctx: Koa.Context): void {
  if (ctx.req.complete) return;
  ctx.set('Connection', 'close');
  ctx.req.unpipe();
  ctx.req.resume();
}

/** PostgreSQL's query_canceled: a statement reached its time limit. */
const queryCanceled = '57014';

/** Translates a thrown error. Errors from reading the body have a status; all others are outages or bugs. */
function refusalOfThrown(error: unknown, path: string): Refusal {
  const status = error instanceof Error && 'status' in error ? error.status : undefined;
  if (isCorruptGzip(error)) return refuse('body_malformed', { expected: 'valid gzip' });
  if (status === 400)
    return refuse('body_malformed', { expected: 'a complete body of the announced length' });
  if (status === 413)
    return refuse('body_too_large', { expected: `at most ${bodyLimitOf(path)} bytes` });
  if (status === 415) {
    const expected = 'gzip, or left out';
    return refuse('content_type_unsupported', { param: 'Content-Encoding', expected });
  }
  if (!isOutage(error))
    return refuse('internal_error', { hint: 'The error is logged under the request_id.' });
  // Not a 422: the filters or the database may be the cause, and only the same request can show which.
  const hint = hasSqlState(error, queryCanceled)
    ? 'The request took too long. Narrow a list by created, or send the request again.'
    : 'Send the request again with the same idempotency key; without a key, check first whether it took effect.';
  return refuse('service_unavailable', { hint });
}

/** Returns how much of a body was read before the error. zlib does not report how much it has inflated. */
function readOf(error: unknown, { path }: Koa.Context): number {
  if (isCorruptGzip(error)) return bodyLimitOf(path);
  const isCounted = error instanceof Error && 'received' in error;
  return isCounted && typeof error.received === 'number' ? error.received : 0;
}

/** Whether zlib failed because the body does not match its Content-Encoding (codes Z_…). */
function isCorruptGzip(error: unknown): boolean {
  return error instanceof Error && 'code' in error && String(error.code).startsWith('Z_');
}

function answerUnknownRoute(ctx: Koa.Context, router: Router) {
  const { path } = router.match(ctx.path, ctx.method);
  if (path.length === 0) {
    const received = shortened(`${ctx.method} ${ctx.path}`, 200);
    const expected = 'a route of the reference at /docs, such as /v1/payouts';
    const detail = `There is no ${received}. The reference at /docs/reference and /openapi.json list every route.`;
    return answerProblem(ctx, refused(refuse('route_not_found', { expected, received, detail })));
  }
  const served = new Set(path.flatMap((layer) => layer.methods));
  const allowed = ['GET', 'HEAD', 'POST', 'DELETE'].filter((method) => served.has(method));
  ctx.set('Allow', allowed.join(', '));
  const expected = alternatives.format(allowed);
  const update = served.size === 4 ? ' To update, use POST.' : '';
  const detail = `${ctx.method} is not supported here: send ${expected}.${update}`;
  const details = { expected, received: ctx.method, detail };
  answerProblem(ctx, { refusals: [refuse('method_not_allowed', details)] });
}

/** Resolves when the client has read the response or has disconnected. Until then it occupies memory here. */
function whenClosed({ res, req }: Koa.Context): Promise<void> {
  if (res.closed || req.socket.destroyed) return Promise.resolve();
  return new Promise((resolve) => res.once('close', () => resolve()));
}

/** Resolves when the responses to all earlier requests on the connection are sent, or the client disconnects. */
async function whenNext({ res, req }: Koa.Context): Promise<void> {
  if (res.socket !== null || req.socket.destroyed) return;
  await new Promise<void>((resolve) => {
    res.once('socket', () => resolve()).once('close', () => resolve());
  });
}

/**
 * Rest after a failure. A failed list may have cost the most, like a search that hit its time limit, so it
 * rests as long as a search.
 */
const failureRestMs = 100;

/**
 * Serves at most `places` requests of an account at a time. A request keeps its slot until its response is
 * read and, after expensive work or a failure, until the slot has rested (`Answer.restMs`). The account's
 * limit of requests in flight bounds how many wait.
 *
 * Responses leave a connection in the order of its requests. So a request that was pipelined takes a slot only
 * when those before it are answered: they may still need the slot that it would keep until then.
 */
export function limitPerAccount(places: number): Koa.Middleware {
  const limit = createKeyedLimit(places);
  return async (ctx, next) => {
    await whenNext(ctx);
    return new Promise<void>((resolve, reject) => {
      limit(holderOf(ctx).account.id, async () => {
        // The client disconnected while its request waited.
        if (ctx.req.socket.destroyed) ctx.throw(400);
        let usualRestMs = failureRestMs;
        await next().then(() => {
          usualRestMs = 0;
          resolve();
        }, reject);
        const restMs: number = ctx.state['restMs'] ?? usualRestMs;
        await Promise.all([whenClosed(ctx), restMs > 0 ? delay(restMs) : undefined]);
      }).catch(reject);
    });
  };
}

/** Tells the sender its own address as seen here, but not the addresses that are allowed. */
const addressNotAllowed = (received: string) =>
  refuse('address_not_allowed', {
    param: 'Authorization',
    expected: 'an API key that may be used from the address of the request',
    received,
    detail: `The API key may not be used from ${received}.`,
  });

/**
 * Authenticates a request before a byte of its body is read, because anonymous clients must not fill the
 * memory. Then applies the account's limits, and reports them in each response. A request is in flight until
 * its response is read: unread responses are what would fill the memory.
 */
function admit({ database, limiter, proxies }: ApiDeps): Koa.Middleware {
  const authenticate = createAuthenticator(database);
  const track = trackAccountConnections(limiter.connections, proxies);
  return async (ctx, next) => {
    // Only these paths require a key.
    if (!ctx.path.startsWith('/v1/')) return next();
    const address = proxies.clientOf(ctx.req);
    const holder = await authenticate(ctx.get('Authorization'), address);
    if (isRefusal(holder)) {
      const isTooFast = holder.code === 'rate_limited';
      const headers = isTooFast ? { 'Retry-After': '1' } : { 'WWW-Authenticate': 'Bearer' };
      return answerProblem(ctx, { refusals: [holder], headers });
    }
    ctx.state['holder'] = holder;
    setVersionHeaders(ctx);
    // The log line names the key, because a key that is used from elsewhere may have leaked.
    if (holder.allowed !== null && !inNetworks(holder.allowed)(address)) {
      return answerProblem(ctx, refused(addressNotAllowed(address)));
    }
    // Noted after the checks, because a stranger must not change what the owner sees as the key's last use.
    if (!holder.isUseNoted) await recordUse(database, holder.keyId);
    const { id } = holder.account;
    const { headers, refusal } = limiter.enter(id);
    ctx.set(headers);
    if (refusal !== undefined) return answerDelayed(ctx, refusal);
    const release = track(ctx.req.socket, id);
    try {
      await next();
    } finally {
      void whenClosed(ctx).then(() => {
        limiter.leave(id);
        release();
      });
    }
  };
}

/**
 * Refuses a key without the route's scope, and an account whose state forbids the route, before the body is
 * read. A frozen account may still cancel payouts and store what it needs later; a closed one can only read.
 * The state is checked again when the payout is decided, because it may change in between.
 */
function requireRights({ database }: ApiDeps, route: Route): Koa.Middleware {
  const reaching = scopesReaching(route);
  return async (ctx, next) => {
    const { scopes, account } = holderOf(ctx);
    if (!scopes.some((scope) => reaching.includes(scope))) {
      return answerProblem(ctx, scopeMissing(scopes, reaching));
    }
    const isStopped = account.state === 'closed' ? route.method !== 'get' : sendsMoney(route);
    const stopped = isStopped ? refuseState(account.state) : undefined;
    if (stopped === undefined) return next();
    // A repeat is served: a caller who lost the first response must not conclude from a refusal that nothing
    // was sent.
    const key = readIdempotencyKey(ctx.headers['idempotency-key']?.toString());
    const first = typeof key === 'string' ? await findKeys(database, account.id, [key]) : [];
    return first.length === 0 ? answerProblem(ctx, refused(stopped)) : next();
  };
}
