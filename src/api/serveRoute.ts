import { setTimeout as delay } from 'node:timers/promises';
import type Koa from 'koa';
import { koaBody } from 'koa-body';
import { noParams } from '../contract/params.js';
import {
  type ApiVersion,
  defaultApiVersion,
  isApiVersion,
  type JsonObject,
  render,
  versionExpected,
  versionHeaders,
  versionNamed,
} from '../contract/versions/index.js';
import { maximumBatchItems } from '../domain/batch.js';
import { type Refusal, refuse, shortened } from '../domain/refusal.js';
import { holderOf } from './auth.js';
import { decodeInSteps, isUndecoded } from './decode.js';
import type { Decoding } from './decoded.js';
import { isList as isDecodedList, maxBodyBytes, maxProblems, refuseParam } from './decoded.js';
import { decodeForm } from './formBody.js';
import { readIdempotencyKey } from './idempotency.js';
import { problemOf } from './problem.js';
import { weightOf } from './rateLimit.js';
import {
  type ApiDeps,
  type ApiRequest,
  isList,
  notFound,
  type Refused,
  type Route,
  refused,
  type Success,
  validate,
} from './route.js';
import { inSlices, type Steps } from './slices.js';

/** Reads and decodes an authenticated request, runs its route, and renders the response. */
export async function serve(deps: ApiDeps, route: Route, ctx: Koa.Context): Promise<void> {
  await readBody(ctx);
  const weight = weightOf(bytesOf(ctx).length);
  // A list is refused if responses sent while it waited have used up the account's items.
  const tooHeavy = isList(route) ? charge(deps, ctx, 0) : takeItems(deps, ctx, weight, 'read');
  if (tooHeavy !== undefined) return answerProblem(ctx, refused(tooHeavy));
  const request = await readRequest(deps, route, ctx);
  const payouts = 'decoded' in request ? request.decoded['payouts'] : undefined;
  // A list that is too long for a batch is refused as such, not for items that are never available.
  const items = isDecodedList(payouts) ? Math.min(payouts.length, maximumBatchItems) : 0;
  const tooMany = takeItems(deps, ctx, items);
  if (tooMany !== undefined) return answerProblem(ctx, refused(tooMany));
  if ('refusals' in request) return answerProblem(ctx, request);
  const unexpected = validate(noParams, route.params === undefined ? request.decoded : {});
  if ('refusals' in unexpected) return answerProblem(ctx, unexpected);
  const database = isList(route) ? deps.lists : deps.database;
  const answer = await route.handle({ ...deps, database }, request);
  ctx.state['restMs'] = answer.restMs;
  if ('refusals' in answer) return answerProblem(ctx, answer);
  ctx.status = answer.status;
  ctx.set({ ...locationOf(route, answer), ...answer.headers });
  const json = await inSlices(encode(answer.body, request.version));
  chargeBytes(deps, ctx, json.length);
  ctx.type = 'json';
  ctx.body = json;
}

/**
 * Renders a response in a version, as JSON. A page may be a megabyte, so it is encoded object by object into
 * one buffer: extra copies of pages that clients do not read would fill the memory.
 */
function* encode(body: JsonObject, version: ApiVersion): Steps<Buffer> {
  const { data } = body;
  if (!Array.isArray(data)) return Buffer.from(JSON.stringify(render(body, version)));
  const empty = JSON.stringify({ ...body, data: [] });
  const start = empty.indexOf('[]') + 1;
  const texts = [empty.slice(0, start)];
  for (const object of data) {
    texts.push(texts.length === 1 ? '' : ',', JSON.stringify(render(object, version)));
    yield;
  }
  texts.push(empty.slice(start));
  const page = Buffer.allocUnsafe(texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0));
  let length = 0;
  for (const text of texts) {
    length += page.write(text, length);
    yield;
  }
  return page;
}

/**
 * Charges for a request before its body is read. Any weight found later is charged then. A body that is too
 * long is refused as such, and not for items that may never be available.
 */
export function weigh(deps: ApiDeps, route: Route): Koa.Middleware {
  // How long a list will be, or a compressed or chunked batch is, is not known yet.
  const minimum = isList(route) || route.acceptsLineFormats === true ? 1 : 0;
  return async (ctx, next) => {
    const bytes = ctx.request.length ?? 0;
    if (ctx.method === 'POST' && bytes > bodyLimitOf(ctx.path)) {
      await delayRefusal(ctx);
      ctx.throw(413);
    }
    const items = Math.max(minimum, weightOf(bytes));
    const refusal = takeItems(deps, ctx, items);
    return refusal === undefined ? next() : answerDelayed(ctx, refusal);
  };
}

/**
 * Charges the items of a request that were not charged before, and refuses it if the quota has fewer left.
 * After a read the work is already done, so the items are charged even if the request is refused.
 */
function takeItems(deps: ApiDeps, ctx: Koa.Context, items: number, how?: 'read') {
  const counted: number = ctx.state['items'] ?? 0;
  if (items <= counted) return undefined;
  ctx.state['items'] = items;
  const refusal = charge(deps, ctx, items - counted);
  if (refusal === undefined || how !== 'read') return refusal;
  charge(deps, ctx, items - counted, 'afterwards');
  // Asks again, to report the time until the same body may be sent.
  return charge(deps, ctx, items - counted);
}

/** Charges items, and reports what is left. Returns a refusal if the quota has fewer left. */
function charge({ limiter }: ApiDeps, ctx: Koa.Context, items: number, how?: 'afterwards') {
  const { headers, refusal } = limiter.takeItems(holderOf(ctx).account.id, items, how);
  ctx.set(headers);
  return refusal;
}

/** Charges for bytes that are known too late to refuse the request. */
export function chargeBytes(deps: ApiDeps, ctx: Koa.Context, bytes: number): void {
  const items = weightOf(bytes);
  if (items > 0) charge(deps, ctx, items, 'afterwards');
}

/** Returns the Location of a new object: its ID under the path of its kind. */
function locationOf(route: Route, { status, body }: Success): Readonly<Record<string, string>> {
  const { id } = body;
  const isNew = status !== 200 && typeof id === 'string' && !route.path.includes(':id');
  return isNew ? { Location: `${route.path}/${id}` } : {};
}

async function readRequest(
  deps: ApiDeps,
  route: Route,
  ctx: Koa.Context,
): Promise<ApiRequest | Refused> {
  const { account, scopes } = holderOf(ctx);
  const { id = '' }: { readonly id?: string } = ctx.params;
  // An empty header is refused: its value probably got lost, and the account's version might be a surprise.
  const version = ctx.headers['corridor-version']?.toString() ?? account.apiVersion;
  if (!isApiVersion(version)) {
    const received = shortened(version, 64);
    const details = { param: 'Corridor-Version', expected: versionExpected, received };
    return refused(refuse('api_version_unknown', details));
  }
  const idempotencyKey = readIdempotencyKey(ctx.headers['idempotency-key']?.toString());
  if (typeof idempotencyKey === 'object') return refused(idempotencyKey);
  const decoded = await decode(route, ctx);
  if (isUndecoded(decoded)) return { refusals: decoded };
  if (route.method === 'post' && route.acceptsLineFormats !== true) {
    const misplaced = [...new URLSearchParams(ctx.querystring).keys()].slice(0, maxProblems);
    if (misplaced.length > 0) return refused(...misplaced.map(misplacedInQuery));
  }
  const request = {
    account,
    scopes,
    version,
    route: `${ctx.method} ${ctx.path}`,
    id: id.slice(0, 64),
    decoded,
    idempotencyKey,
    name: (object: Refused['object']) => {
      ctx.state['object'] = object;
    },
    takeItems: (items: number) => takeItems(deps, ctx, items),
    waitMs: readWait(ctx.get('Prefer')),
  };
  // No ID is longer or has other characters, and PostgreSQL refuses a parameter with U+0000.
  return /^\w{0,64}$/.test(id) ? request : refused(notFound(request));
}

/**
 * Sets the headers of the requested version if there is such a version, and otherwise of the account's. They
 * replace those of the default version, which every response starts with.
 */
export function setVersionHeaders(ctx: Koa.Context): void {
  const requested = ctx.get('Corridor-Version');
  const own = versionNamed(holderOf(ctx).account.apiVersion);
  for (const name of Object.keys(versionHeaders(defaultApiVersion))) ctx.remove(name);
  ctx.set(versionHeaders(isApiVersion(requested) ? requested : own));
}

/** Maximum size of an ordinary body. With all its metadata percent-encoded, the longest payout is 30 KB. */
const bodyLimitBytes = 64 * 1024;

/** Maximum size of a rail's callback. 500 events take a quarter of it. */
const callbackLimitBytes = 256 * 1024;

/** Returns the maximum body size of a path. Only a batch may be long: 10,000 items are about 2 MB. */
export function bodyLimitOf(path: string): number {
  if (path.startsWith('/rails/')) return callbackLimitBytes;
  return path === '/v1/batches' ? maxBodyBytes : bodyLimitBytes;
}

/** Content encodings that are accepted. Others would only be more ways to hide a large body. */
const encodings = ['identity', 'gzip'];

const readers = new Map(
  [bodyLimitBytes, callbackLimitBytes, maxBodyBytes].map((textLimit) => [
    textLimit,
    koaBody({
      json: false,
      urlencoded: false,
      multipart: false,
      text: true,
      textTypes: ['*/*'],
      // Empty, to get the raw bytes. Decoding a long body to text and back to bytes takes 20 ms.
      encoding: '',
      textLimit,
    }),
  ]),
);

/** Reads the body of a POST as bytes. The caller decodes them. */
export async function readBody(ctx: Koa.Context): Promise<void> {
  // Content codings are case-insensitive (RFC 9110, 8.4.1), but the library that inflates the body expects lower
  // case.
  ctx.req.headers['content-encoding'] = ctx.get('Content-Encoding').toLowerCase() || 'identity';
  if (!encodings.includes(ctx.get('Content-Encoding'))) ctx.throw(415);
  // The body of any other method has no meaning.
  if (ctx.method !== 'POST') return;
  // The client disconnected while its key was being looked up.
  if (!ctx.req.readable) ctx.throw(400);
  // The stream that inflates a truncated body fails even when it is no longer read, as after a 413. Without
  // an error listener this would end the process.
  const pipe = ctx.req.pipe.bind(ctx.req);
  Object.assign(ctx.req, { pipe: (to: NodeJS.WritableStream) => pipe(to.on('error', () => {})) });
  await readers.get(bodyLimitOf(ctx.path))?.(ctx, async () => undefined);
}

/** Returns the body as it was sent. */
export function bytesOf(ctx: Koa.Context): Buffer {
  const { body } = ctx.request;
  return Buffer.isBuffer(body) ? body : Buffer.alloc(0);
}

/** Maximum time for which a request is held open. Typical proxies time out not much later. */
const maxWaitSeconds = 30;

/**
 * Returns the milliseconds to wait for `Prefer: wait=N` (RFC 7240, in seconds). A longer wait is cut to the
 * maximum, and anything else is ignored.
 */
function readWait(prefer: string): number {
  const seconds = /(?:^|,|;)\s*wait\s*=\s*(\d{1,6})\s*(?:$|,|;)/i.exec(prefer)?.[1];
  if (seconds === undefined) return 0;
  return Math.min(Number.parseInt(seconds, 10), maxWaitSeconds) * 1000;
}

/**
 * Holds a request for a feed, as `Prefer: wait=N` asks, until there is an event after its position. Runs
 * before the account's slots for lists are taken, because these are for reading. A request that will be
 * refused does not wait.
 */
export function holdForFeed({ feedWaits }: ApiDeps, route: Route): Koa.Middleware {
  return async (ctx, next) => {
    const waitMs = readWait(ctx.get('Prefer'));
    const decoded = waitMs === 0 ? [] : await decodeQuery(route, ctx);
    const after = isUndecoded(decoded) ? undefined : route.feedPosition?.(decoded);
    if (after === undefined) return next();
    const closed = new AbortController();
    ctx.res.once('close', () => closed.abort());
    await feedWaits.until({ accountId: holderOf(ctx).account.id, after }, waitMs, closed.signal);
    ctx.set('Preference-Applied', `wait=${waitMs / 1000}`);
    return next();
  };
}

/** Refuses a query parameter of a POST: the parameters of a POST belong in its body. */
function misplacedInQuery(name: string): Refusal {
  const { param } = refuseParam(name, '');
  const detail = `${param} is in the query: send the parameters of a POST in its body.`;
  return refuse('parameter_unknown', { param, expected: 'none in the query', detail });
}

async function decode(route: Route, ctx: Koa.Context): Promise<Decoding> {
  if (ctx.method !== 'POST') return decodeQuery(route, ctx);
  const body = await decodePosted(route, ctx);
  if (route.acceptsLineFormats !== true || isUndecoded(body)) return body;
  // A body of lines has no place for parameters of the whole request, so these are in the query. Other bodies
  // may do the same.
  const query = await decodeQuery(route, ctx);
  if (isUndecoded(query)) return query;
  const misplaced = Object.keys(query).filter((name) => name === 'payouts' || name in body);
  if (misplaced.length === 0) return Object.assign(Object.create(null), query, body);
  return misplaced.map((name) => refuseParam(name, 'sent in the body, not in the query'));
}

function decodeQuery({ params }: Route, ctx: Koa.Context): Promise<Decoding> {
  return inSlices(decodeForm(Buffer.from(ctx.querystring), params));
}

function decodePosted(route: Route, ctx: Koa.Context): Promise<Decoding> {
  const isChunked = ctx.get('Transfer-Encoding') !== '';
  const hasBody = isChunked || !['', '0'].includes(ctx.get('Content-Length'));
  const isUnread = !Buffer.isBuffer(ctx.request.body) && hasBody;
  // A body without a Content-Type, or with a malformed one, was not read at all, and is refused for that.
  const bytes = isUnread ? Buffer.from('-') : bytesOf(ctx);
  return inSlices(decodeInSteps(bytes, ctx.get('Content-Type'), route.acceptsLineFormats, route));
}

/** Delay of a refusal. It is shorter than any Retry-After, so it costs a client that waits nothing. */
const answerDelayMs = 200;

/**
 * Further delay per MiB of the body. A body that is refused unread is still received: one 8 MiB body after
 * another would use a quarter of a core.
 */
const delayMsPerMebibyte = 500;

/** Maximum size to count: the limit for a body. Announcing a larger body causes no longer delay. */
const maxMebibytes = maxBodyBytes / 1024 / 1024;

/** Maximum number of responses delayed at a time, a few kilobytes each. Any further ones are sent at once. */
const maxDelayedAnswers = 1_000;
let delayedAnswers = 0;

/**
 * Delays the refusal of a request that exceeds a limit. Otherwise a client that ignores Retry-After and
 * sends again at once would keep the process busy with refusals.
 */
async function delayRefusal(ctx: Koa.Context): Promise<void> {
  if (delayedAnswers >= maxDelayedAnswers) return;
  delayedAnswers += 1;
  const mebibytes = (ctx.request.length ?? 0) / 1024 / 1024;
  await delay(answerDelayMs + delayMsPerMebibyte * Math.min(mebibytes, maxMebibytes));
  delayedAnswers -= 1;
}

/** Refuses a request that exceeds a limit, after a delay. */
export async function answerDelayed(ctx: Koa.Context, refusal: Refusal): Promise<void> {
  await delayRefusal(ctx);
  answerProblem(ctx, { refusals: [refusal] });
}

/** Responds with problem details (RFC 9457). */
export function answerProblem(ctx: Koa.Context, answer: Refused): void {
  const problem = problemOf(answer.refusals, String(ctx.state['requestId']));
  ctx.set({ ...answer.headers });
  // A refusal stored with a payout never changes, so no Retry-After: the client would wait in vain.
  const isKept = answer.object !== undefined && problem.code === 'rate_unavailable';
  if (problem.status === 503 && !isKept && !ctx.res.hasHeader('Retry-After')) {
    ctx.set('Retry-After', '5');
  }
  if (problem.code === 'request_in_progress') ctx.set('Retry-After', '1');
  // Bytes, so that it can be compressed: it may list a hundred errors.
  const object = answer.object ?? answer.refusals[0]?.made;
  ctx.body = Buffer.from(JSON.stringify({ ...problem, ...object }));
  ctx.state['code'] = problem.code;
  ctx.status = problem.status;
  ctx.type = 'application/problem+json';
}
