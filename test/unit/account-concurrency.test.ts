import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import Koa from 'koa';
import { expect, it } from 'vitest';
import { limitPerAccount } from '../../src/api/app.js';

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
    const app = new Koa({ asyncLocalStorage: false });
    app.silent = true;
    app.use((ctx, next) => {
      ctx.state['holder'] = { account: { id: 'acc_one' } };
      return next();
    });
    app.use(limitPerAccount(1));
    app.use(async (ctx) => {
      note('begun');
      await delay(workMs);
      note('done');
      ctx.state['restMs'] = requestedMs;
      if (status === 500) throw new Error('This request fails.');
      ctx.body = {};
    });
    const server = app.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const address = server.address();
      if (address === null || typeof address === 'string')
        throw new Error('The server has no port.');
      const url = `http://127.0.0.1:${address.port}/`;
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
