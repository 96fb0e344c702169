import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createFeedWaits } from '../../src/api/feedWaits.js';
import { createLimiter } from '../../src/api/rateLimit.js';
import { webhookExample } from '../../src/contract/webhookExamples.js';
import type { Database, Sql } from '../../src/db/client.js';
import { recordWebhookEvents } from '../../src/db/events.js';
import { startApiProcess } from '../servers/apiProcess.js';
import { createTestAccount, type TestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

/** Too few places for the lists below, if each waiting request took one of them. */
const inFlight = 4;
let system: TestSystem;
let caller: TestAccount;

beforeAll(async () => {
  const limiter = createLimiter({
    ...{ perSecond: 10_000, burst: 10_000, inFlight, itemsPerSecond: 100_000 },
  });
  system = await startSystem({ startsWorker: false, limiter });
});
beforeEach(async () => {
  caller = await createTestAccount(system.database);
});
afterAll(() => system.stop());

/** Requests the feed; returns the answer, the time of its arrival, and its events. */
async function ask(
  query: string,
  wait: number | undefined,
  options: RequestInit = {},
  url = system.apiUrl,
) {
  const startedMs = performance.now();
  const answer = await fetch(`${url}/v1/events?${query}`, {
    ...options,
    headers: {
      authorization: `Bearer ${caller.apiKey}`,
      ...(wait === undefined ? {} : { prefer: `wait=${wait}` }),
    },
  });
  const body: { readonly data?: readonly { readonly sequence: number }[] } = JSON.parse(
    await answer.text(),
  );
  const endedMs = performance.now();
  return {
    status: answer.status,
    applied: answer.headers.get('preference-applied'),
    sequences: body.data?.map(({ sequence }) => sequence),
    endedMs,
    elapsedMs: endedMs - startedMs,
  };
}

/** Writes an event of the account, as a worker does. */
function happen(sql: Sql = system.worker, accountId = caller.account.id) {
  const { data } = webhookExample('batch.completed', '2026-11-15');
  const facts = { ...Object(data) };
  return recordWebhookEvents(sql, [
    { type: 'batch.completed', facts, accountId, subjectId: 'bat_1' },
  ]);
}

describe('GET /v1/events with after and Prefer: wait', () => {
  it('answers at once with events that exist', async () => {
    await happen();
    await happen();
    const answer = await ask('after=1', 20);
    expect(answer).toMatchObject({ status: 200, sequences: [2], applied: 'wait=20' });
    expect(answer.elapsedMs).toBeLessThan(2_000);
  });

  it('answers with an empty list when the time is over', async () => {
    await happen();
    const answer = await ask('after=1', 1);
    expect(answer).toMatchObject({ status: 200, sequences: [], applied: 'wait=1' });
    expect(answer.elapsedMs).toBeGreaterThanOrEqual(1_000);
    expect(answer.elapsedMs).toBeLessThan(5_000);
  });

  it('answers within a second of an event’s commit, and not earlier', async () => {
    const committed = { atMs: Number.POSITIVE_INFINITY };
    const waiting = ask('after=0', 20);
    await system.worker.begin(async (sql) => {
      await happen(sql);
      const first = await Promise.race([waiting, delay(1_000, 'open')]);
      expect(first).toBe('open');
      committed.atMs = performance.now();
    });
    const answer = await waiting;
    expect(answer.sequences).toEqual([1]);
    expect(answer.endedMs - committed.atMs).toBeGreaterThanOrEqual(0);
    expect(answer.endedMs - committed.atMs).toBeLessThan(1_000);
  });

  it('skips nothing when commits of several accounts overlap', async () => {
    const seen: number[] = [];
    const reading = (async () => {
      while (seen.length < 30) {
        const { sequences = [] } = await ask(`after=${seen.at(-1) ?? 0}&limit=7`, 20);
        seen.push(...sequences);
      }
    })();
    const other = await createTestAccount(system.database);
    const writes = Array.from({ length: 30 }, (_, index) =>
      system.worker.begin(async (sql) => {
        await sql`select pg_sleep(${(index % 5) / 50})`;
        await happen(sql);
      }),
    );
    await Promise.all([...writes, happen(system.worker, other.account.id), reading]);
    expect(seen).toEqual(Array.from({ length: 30 }, (_, index) => index + 1));
  });

  it('does not wait without Prefer: wait or without a position', async () => {
    for (const [query, wait] of [
      ['after=0', undefined],
      ['after=0', 0],
      ['limit=1', 20],
    ] as const) {
      const answer = await ask(query, wait);
      expect(answer).toMatchObject({ status: 200, sequences: [], applied: null });
      expect(answer.elapsedMs).toBeLessThan(2_000);
    }
  });

  it.each(['after=x', 'after=0&limit=1000', 'after=0&type=payout.settled', 'after=0&nothing=1'])(
    'refuses %s at once',
    async (query) => {
      const answer = await ask(query, 20);
      expect(answer).toMatchObject({ status: 400, applied: null });
      expect(answer.elapsedMs).toBeLessThan(2_000);
    },
  );

  it('uses no slot for lists while it waits, and frees its own when the caller leaves', async () => {
    const callers = Array.from({ length: inFlight }, () => new AbortController());
    // A wait that arrives while a list occupies the place is refused, and tries again.
    const wait = async (signal: AbortSignal) => {
      while ((await ask('after=0', 30, { signal })).status === 429);
    };
    const waiting = callers.map(({ signal }) => wait(signal).catch(() => 'gone'));
    const list = () => ask('limit=1', undefined);
    await expect.poll(async () => (await list()).status).toBe(429);
    callers[0]?.abort();
    // Two lists are read at a time and three requests wait: if those took places, no list would get one.
    await expect.poll(async () => (await list()).status, { timeout: 5_000 }).toBe(200);
    for (const other of callers) other.abort();
    expect(await Promise.all(waiting)).toEqual(Array(inFlight).fill('gone'));
  });

  it('is answered with an empty list when the process stops', async () => {
    const api = await startApiProcess(system.urls.api);
    const waiting = ask('after=0', 30, {}, api.url);
    // The use of the key is recorded before the wait begins.
    await expect
      .poll(async () => {
        const [key] = await system.database`
          select last_used_at from api_keys where account_id = ${caller.account.id}`;
        return key?.['lastUsedAt'] ?? null;
      })
      .not.toBeNull();
    const stoppedMs = performance.now();
    api.terminate();
    const answer = await waiting;
    expect(answer).toMatchObject({ status: 200, sequences: [] });
    // After eight seconds the connection would be cut.
    expect(answer.endedMs - stoppedMs).toBeLessThan(6_000);
    expect((await api.part.exited).code).toBe(0);
  });
});

describe('waiting requests', () => {
  /** Wraps the database to count its statements. */
  function counted(database: Database) {
    const count = { statements: 0 };
    const apply: ProxyHandler<Database>['apply'] = (target, self, args) => {
      count.statements += 1;
      return Reflect.apply(target, self, args);
    };
    return { count, database: new Proxy(database, { apply }) };
  }
  const never = new AbortController().signal;

  it('share their statements, and cause none once they have ended', async () => {
    const { count, database } = counted(system.worker);
    const waits = createFeedWaits(database);
    const position = { accountId: caller.account.id, after: 0n };
    const all = Array.from({ length: 50 }, () => waits.until(position, 20_000, never));
    const startedMs = performance.now();
    await delay(1_500);
    await happen();
    await Promise.all(all);
    // One query per request on arrival, and one for all of them every 200 ms.
    const polls = Math.ceil((performance.now() - startedMs) / 200) + 1;
    expect(count.statements).toBeGreaterThan(52);
    expect(count.statements).toBeLessThanOrEqual(50 + polls);
    await delay(400);
    const after = count.statements;
    await delay(600);
    expect(count.statements).toBe(after);
  });

  it('end when the database is gone, so that their reads report it', async () => {
    const { count, database } = counted(system.worker);
    const waits = createFeedWaits(
      new Proxy(database, {
        apply: (target, self, args) =>
          count.statements < 1
            ? Reflect.apply(target, self, args)
            : Promise.reject(new Error('The connection is gone.')),
      }),
    );
    const startedMs = performance.now();
    await waits.until({ accountId: caller.account.id, after: 0n }, 20_000, never);
    expect(performance.now() - startedMs).toBeLessThan(5_000);
  });
});
