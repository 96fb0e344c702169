import type Koa from 'koa';
import { bulkTransaction } from '../../db/client.js';
import { storeRailEvents } from '../../db/railInbox.js';
import { refuse } from '../../domain/refusal.js';
import { createKeyedLimit } from '../../keyedLimit.js';
import { count } from '../../metrics.js';
import type { CallbackReader } from '../../rails/rail.js';
import { wakeChunks, wakePayouts } from '../../temporal/workflowCalls.js';
import { networkOf } from '../clientAddress.js';
import { trusted } from '../connections.js';
import type { ApiDeps } from '../route.js';
import { answerProblem, bytesOf, readBody } from '../serveRoute.js';

/** Maximum number of callback bodies read from one address at a time. Together they hold at most 16 MiB. */
const bodiesAtOnce = 64;

/**
 * Receives a rail's callback. Anything that its headers alone show to be wrong is refused before a byte of an
 * unverified body is read. Anyone can make headers that look signed, so only a limited number of bodies are
 * read from one address at a time.
 */
export function receiveCallback(deps: ApiDeps): Koa.Middleware {
  const reading = createKeyedLimit(bodiesAtOnce, 0);
  return async (ctx) => {
    const rail = deps.rails.get(/^\/rails\/([a-z]{1,32})\/callbacks$/.exec(ctx.path)?.[1] ?? '');
    const header = (name: string) => ctx.get(name);
    if (!rail?.looksSigned({ header, receivedAt: new Date() })) {
      const code = rail === undefined ? 'route_not_found' : 'signature_invalid';
      return answerProblem(ctx, { refusals: [refuse(code)] });
    }
    const read = reading(networkOf(deps.proxies.clientOf(ctx.req)), () => readBody(ctx));
    if (read === undefined) {
      const expected = `at most ${bodiesAtOnce} callbacks at a time from one address`;
      const refusals = [refuse('too_many_in_flight', { expected })];
      return answerProblem(ctx, { refusals, headers: { 'Retry-After': '1' } });
    }
    await read;
    return takeCallback(deps, ctx, rail);
  };
}

/**
 * Stores the events of a callback, each once, before signaling any workflow, and responds with 200. If a
 * payout's workflow cannot be signaled, the sweep processes the payout.
 */
async function takeCallback(deps: ApiDeps, ctx: Koa.Context, rail: CallbackReader): Promise<void> {
  const header = (name: string) => ctx.get(name);
  const parsed = rail.parseCallback({ body: bytesOf(ctx), header, receivedAt: new Date() });
  if (parsed === undefined) return answerProblem(ctx, { refusals: [refuse('signature_invalid')] });
  trusted.add(ctx.req.socket);
  if ('unreadable' in parsed) {
    // A repeat would not help: an operator must ask the rail. No values are logged, because they may be
    // personal data.
    count('unreadable_callbacks_total', { rail: rail.name });
    deps.log.error({ rail: rail.name, ...parsed }, 'a signed callback cannot be read');
    const expected = `a callback in the format of the rail; not in that format: ${parsed.unreadable}`;
    return answerProblem(ctx, { refusals: [refuse('body_malformed', { expected })] });
  }
  const woken = await bulkTransaction(deps.database, parsed.length, (sql) =>
    storeRailEvents(sql, rail.name, parsed),
  );
  const failures = [
    ...(await wakePayouts(deps.temporal, woken.payouts)),
    ...(await wakeChunks(deps.temporal, woken.chunks)),
  ];
  if (failures.length > 0) {
    count('wake_failures_total', {}, failures.length);
    deps.log.warn(
      { err: failures[0]?.error, count: failures.length },
      'payouts could not be woken; the sweep will wake them',
    );
  }
  ctx.status = 200;
  ctx.body = { received: parsed.length };
}
