import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import Koa from 'koa';
import { expect, it } from 'vitest';
import { limitPerAccount } from '../../src/api/app.js';
import { openWire } from '../fixtures/wire.js';

/** Serves an application with slots for one account, each request of which is passed through `before` first. */
async function serveSlots(places: number, before: Koa.Middleware, work: Koa.Middleware) {
  const app = new Koa({ asyncLocalStorage: false });
  app.silent = true;
  app.use((ctx, next) => {
    ctx.state['holder'] = { account: { id: 'acc_one' } };
    return before(ctx, next);
  });
  app.use(limitPerAccount(places));
  app.use(work);
  const server = app.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('The server has no port.');
  return { server, url: `http://127.0.0.1:${address.port}/` };
}

it('requests on one connection take their slot in turn, whichever of them is ready first', async () => {
  const open: string[] = [];
  const { server, url } = await serveSlots(
    1,
    async (ctx, next) => {
      if (ctx.path === '/first') await delay(50);
      await next();
    },
    (ctx) => {
      open.push(ctx.path);
      // The slot is free only when the response before it has been sent.
      ctx.res.once('close', () => open.push(`${ctx.path} sent`));
      ctx.body = ctx.path;
    },
  );
  const wire = await openWire(url);
  const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`;
  wire.write(get('/first') + get('/second') + get('/third'));
  try {
    for (const path of ['/first', '/second', '/third'])
      expect((await wire.answer()).body).toBe(path);
    expect(open.slice(0, 5)).toEqual([
      '/first',
      '/first sent',
      '/second',
      '/second sent',
      '/third',
    ]);
  } finally {
    wire.destroy();
    server.close();
  }
}, 5_000);

it.each([
  [200, 'sets a pause', 80],
  [500, 'sets a pause', 80],
  [500, 'sets none', undefined],
])(
  'a slot stays taken for a pause after a request that answers %d and %s',
  async (status, _, requestedMs) => {
    const workMs = 20;
    const restMs = requestedMs ?? 100;
    const times: { readonly event: 'begun' | 'done'; readonly atMs: number }[] = [];
    const note = (event: 'begun' | 'done') => times.push({ event, atMs: performance.now() });
    const { server, url } = await serveSlots(
      1,
      (_ctx, next) => next(),
      async (ctx) => {
        note('begun');
        await delay(workMs);
        note('done');
        ctx.state['restMs'] = requestedMs;
        if (status === 500) throw new Error('This request fails.');
        ctx.body = {};
      },
    );
    try {
      const answers = await Promise.all([fetch(url), fetch(url)]);
      expect(answers.map((answer) => answer.status)).toEqual([status, status]);
    } finally {
      server.close();
    }
    expect(times.map(({ event }) => event)).toEqual(['begun', 'done', 'begun', 'done']);
    const [, firstDone, secondBegun] = times;
    // A timer may fire up to a millisecond early.
    expect((secondBegun?.atMs ?? 0) - (firstDone?.atMs ?? 0)).toBeGreaterThanOrEqual(restMs - 2);
  },
);
