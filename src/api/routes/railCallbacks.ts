import type Koa from 'koa';
import { bulkTransaction } from '../../db/client.js';
import { insertNews } from '../../db/inbox.js';
import { refuse } from '../../domain/refusal.js';
import type { CallbackEvent } from '../../rails/rail.js';
import { wakeChunks, wakePayouts } from '../../temporal/wakePayout.js';
import type { ApiDeps } from '../route.js';
import { answerProblem } from '../serve.js';

/**
 * Takes a rail's callback: its facts are kept, each once, before anybody is woken. The rail
 * gets its 200 as soon as they are; a payout that could not be woken is due for the sweep.
 */
export async function takeCallback(deps: ApiDeps, ctx: Koa.Context, body: Buffer): Promise<void> {
  const [, railName = ''] = /^\/rails\/([a-z]{1,32})\/callbacks$/.exec(ctx.path) ?? [];
  const rail = deps.rails.find(railName);
  const events = rail?.parseCallback({
    body,
    header: (name) => ctx.get(name),
    receivedAt: new Date(),
  });
  if (rail === undefined || events === undefined) {
    const code = rail === undefined ? 'route_not_found' : 'signature_invalid';
    return answerProblem(ctx, { refusals: [refuse(code)] });
  }
  const news = events.map((event) => newsOf(rail.name, event));
  const woken = await bulkTransaction(deps.database, news.length, (sql) => insertNews(sql, news));
  const failures = [
    ...(await wakePayouts(deps.temporal, woken.payouts)),
    ...(await wakeChunks(deps.temporal, woken.chunks)),
  ];
  if (failures.length > 0) {
    deps.metrics.wakeFailures.inc(failures.length);
    deps.log.warn({ err: failures[0]?.error, count: failures.length }, 'left to the sweep');
  }
  ctx.status = 200;
  ctx.body = { received: events.length };
}

function newsOf(rail: string, event: CallbackEvent) {
  const { kind, amountMinor, currency, code, reason, at } = event;
  const fact = {
    kind,
    amountMinor,
    currency,
    ...(code === undefined ? {} : { code }),
    ...(reason === undefined ? {} : { reason }),
    ...(at === undefined ? {} : { at }),
  };
  // The rail's key is the payout's id: see railKey.
  return { rail, railEventId: event.id, railKey: event.key, payoutId: event.key, fact };
}
