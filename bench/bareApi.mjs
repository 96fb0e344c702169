// The two routes of bench/reads.mjs without Corridor's API: Koa, the same connection pool and SQL statements,
// and a JSON response, without any validation.
import Router from '@koa/router';
import Koa from 'koa';
import { koaBody } from 'koa-body';
import { findKeyHolder, hashOfKey } from '../dist/src/db/apiKeys.js';
import { connectDatabase } from '../dist/src/db/client.js';
import { newId } from '../dist/src/db/id.js';
import { findPayout } from '../dist/src/db/payouts.js';
import { insertQuote } from '../dist/src/db/quotes.js';
import { currentRates, midOf } from '../dist/src/db/rates.js';
import { currentTerms, priceOriginOf } from '../dist/src/db/terms.js';
import { corridorOf } from '../dist/src/domain/corridor.js';
import { price } from '../dist/src/domain/quote.js';

const { DATABASE_URL, ACCOUNT_ID, POOL_SIZE } = process.env;
const database = connectDatabase({
  ...{ url: DATABASE_URL, poolSize: Number(POOL_SIZE), applicationName: 'bare' },
});
const dayMs = 24 * 60 * 60 * 1000;

/** Returns the caller's account: looked up by its key as in the API, or the given one. */
async function accountOf(ctx) {
  if (ctx.get('x-without-key') !== '') return ACCOUNT_ID;
  const holder = await findKeyHolder(database, hashOfKey(ctx.get('authorization').slice(7)));
  return holder.account.id;
}

const json = (value) =>
  JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? each.toString() : each));

const router = new Router();
router.get('/v1/payouts/:id', async (ctx) => {
  ctx.body = json(await findPayout(database, await accountOf(ctx), ctx.params.id));
  ctx.type = 'application/json';
});
router.post('/v1/quotes', koaBody(), async (ctx) => {
  const accountId = await accountOf(ctx);
  const { source_currency: sourceCurrency, destination_currency: destinationCurrency } =
    ctx.request.body;
  const rates = await currentRates(database, dayMs, [sourceCurrency, destinationCurrency]);
  const amount = BigInt(ctx.request.body.amount);
  const asked = { sourceCurrency, destinationCurrency, amount, fixedSide: 'source' };
  const { at: createdAt, terms } = await currentTerms(database, accountId);
  const corridor = corridorOf(terms, sourceCurrency, destinationCurrency);
  const mid = midOf(rates, sourceCurrency, destinationCurrency);
  const quote = await insertQuote(database, {
    ...{ id: newId('quote'), accountId, ...asked, createdAt },
    price: price({ ...asked, mid, corridor }),
    origin: priceOriginOf(rates, corridor),
  });
  ctx.status = 201;
  ctx.body = json(quote);
  ctx.type = 'application/json';
});

const server = new Koa().use(router.routes()).listen(0, '127.0.0.1', () => {
  console.log(JSON.stringify({ ready: `http://127.0.0.1:${server.address().port}` }));
});
process.once('disconnect', () => process.exit(0));
process.once('SIGTERM', () => process.exit(0));
