import { once } from 'node:events';
import { gzipSync } from 'node:zlib';
import { pino } from 'pino';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { trustProxies } from '../../src/api/clientAddress.js';
import { createHttpServer, httpLimits } from '../../src/api/httpServer.js';
import { createLimiter, type Limiter } from '../../src/api/rateLimit.js';
import { createApiKey } from '../../src/db/apiKeys.js';
import { newId } from '../../src/db/id.js';
import { insertPayout } from '../../src/db/payouts.js';
import { eventually } from '../assertions/eventually.js';
import {
  type ApiAnswer,
  type ApiClient,
  createClient,
  type RequestOptions,
  textOf,
} from '../fixtures/client.js';
import { openWire, type Wire } from '../fixtures/wire.js';
import { addApiKey, createTestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

const limits = { perSecond: 2, burst: 4, inFlight: 3, itemsPerSecond: 1_000 };
let nowMs = 0;
let system: TestSystem;
let client: ApiClient;
let apiKey: string;
let accountId: string;
let limiter: Limiter;

beforeAll(async () => {
  // The clock of the limits stands still until a test moves it.
  limiter = createLimiter(limits, () => nowMs);
  system = await startSystem({ startsWorker: false, limiter });
});
afterAll(() => system.stop());

beforeEach(async () => {
  const opened = await createTestAccount(system.database);
  apiKey = opened.apiKey;
  client = createClient(system.apiUrl, apiKey);
  accountId = opened.account.id;
});

async function useUp(times: number = limits.burst): Promise<void> {
  for (let sent = 0; sent < times; sent += 1) await client('GET /v1/account');
}

const quote = { source_currency: 'USD', destination_currency: 'EUR', amount: '10000' };

describe('an account', () => {
  it.each([
    ['answered', 'GET /v1/account', 200],
    ['malformed', 'POST /v1/quotes', 400],
    ['about nothing', 'GET /v1/payouts/po_none', 404],
    ['of no route', 'GET /v1/nothing', 404],
    ['of another method', 'DELETE /v1/quotes', 405],
  ])('is told its remaining quota by a request that is %s', async (_case, request, status) => {
    const answer = await client(request);
    expect(answer.status).toBe(status);
    expect(answer.headers.get('ratelimit-policy')).toBe('"default";q=4;w=2');
    expect(answer.headers.get('ratelimit')).toBe('"default";r=3;t=1');
    expect(answer.headers.has('retry-after')).toBe(false);
  });

  it('is told the API version even by refusals of requests that were not read', async () => {
    const { apiKey: newest } = await createTestAccount(system.database, {
      apiVersion: '2026-11-15',
    });
    const send = async (request: string, options: RequestOptions = {}, key = newest) => {
      const { status, headers } = await createClient(system.apiUrl, key)(request, options);
      return [status, headers.get('corridor-version')];
    };
    const older = { headers: { 'corridor-version': '2026-06-01' } };
    const unknown = { headers: { 'corridor-version': '2020-01-01' } };
    const tooLong = { raw: { body: 'x'.repeat(70_000), contentType: 'application/json' } };
    expect(await send('GET /v1/nothing')).toEqual([404, '2026-11-15']);
    expect(await send('DELETE /v1/quotes', older)).toEqual([405, '2026-06-01']);
    expect(await send('POST /v1/quotes', tooLong)).toEqual([413, '2026-11-15']);
    expect(await send('POST /v1/quotes', unknown)).toEqual([400, '2026-11-15']);
    expect(await send('GET /v1/account')).toEqual([429, '2026-11-15']);
    expect(await send('GET /v1/account', older)).toEqual([429, '2026-06-01']);
    // Whose account it is was not known yet.
    expect(await send('GET /v1/account', {}, 'sk_wrong')).toEqual([401, '2026-06-01']);
  });

  it('is refused with 429 over its limit, and told when to retry', async () => {
    await useUp();
    const refused = await client('GET /v1/account');
    expect(refused.status).toBe(429);
    expect(refused.headers.get('content-type')).toMatch(/^application\/problem\+json/);
    expect(refused.headers.get('ratelimit')).toBe('"default";r=0;t=2');
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(refused.body).toMatchObject({
      type: '/docs/errors#rate_limited',
      status: 429,
      code: 'rate_limited',
      expected: 'at most 2 requests a second by this account, in bursts of up to 4',
      request_id: refused.headers.get('request-id'),
    });
    nowMs += 500;
    expect((await client('GET /v1/account')).status).toBe(200);
    // A client that retries immediately gets a delayed answer.
    const startMs = performance.now();
    expect((await client('GET /v1/account')).status).toBe(429);
    expect(performance.now() - startMs).toBeGreaterThan(190);
  });

  it('can use the idempotency key of a refused request again', async () => {
    await useUp();
    const send = () => client('POST /v1/quotes', { form: quote, idempotencyKey: 'once' });
    expect((await send()).status).toBe(429);
    nowMs += 500;
    const made = await send();
    expect(made.status).toBe(201);
    expect(made.headers.has('idempotent-replayed')).toBe(false);
  });

  it('shares its limit between its keys, and with no other account', async () => {
    const other = await addApiKey(system.database, accountId);
    await useUp();
    expect((await createClient(system.apiUrl, other)('GET /v1/account')).status).toBe(429);
    const { apiKey } = await createTestAccount(system.database);
    const answer = await createClient(system.apiUrl, apiKey)('GET /v1/account');
    expect(answer.headers.get('ratelimit')).toBe('"default";r=3;t=1');
  });

  const payout = { source_currency: 'USD', amount: '100', beneficiary: 'bnf_none' };
  const itemsLeft = (answer: ApiAnswer) =>
    /"items";r=(\d+)/.exec(answer.headers.get('ratelimit') ?? '')?.[1];

  it('uses one request and one item per payout for a batch', async () => {
    const json = { payouts: Array.from({ length: 50 }, () => payout) };
    const answer = await client('POST /v1/batches', { json });
    expect(answer.status).toBe(202);
    expect(answer.headers.get('ratelimit-policy')).toBe('"default";q=4;w=2, "items";q=21000;w=21');
    expect(answer.headers.get('ratelimit')).toBe('"default";r=3;t=1, "items";r=20950;t=1');
  });

  it.each([
    ['a preview', { validate_only: true }],
    ['a batch', { validate_only: false }],
  ])(
    'is refused %s when its items are used up, before anything is evaluated or stored',
    async (_, mode) => {
      const json = { payouts: Array.from({ length: 10_000 }, () => payout), ...mode };
      const send = () => client('POST /v1/batches', { json, idempotencyKey: 'once' });
      limiter.takeItems(accountId, 20_000);
      const refused = await send();
      expect(refused.status).toBe(429);
      expect(refused.body).toMatchObject({
        code: 'rate_limited',
        expected: 'at most 1000 items a second by this account, in bursts of up to 21000',
        detail:
          'Too many requests: expected at most 1000 items a second by this account, in bursts of up to 21000. Wait for the number of seconds in Retry-After, then retry. Each payout of a batch is an item, and each 800 bytes of a body or a response.',
      });
      expect(itemsLeft(refused)).toMatch(/^\d+$/);
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(9);
      const keys = await system.database`
      select from idempotency_keys where account_id = ${accountId}`;
      expect(keys.count).toBe(0);
      // The account's other requests are still served.
      expect((await client('GET /v1/account')).status).toBe(200);
      nowMs += 30_000;
      expect((await send()).status).toBe(mode.validate_only ? 200 : 202);
    },
  );

  it('gets the batch size error, not 429, for more items than it can ever have', async () => {
    const json = { payouts: Array.from({ length: 25_000 }, () => payout) };
    const answer = await client('POST /v1/batches', { json });
    expect(answer.status).toBe(400);
    expect(answer.body).toMatchObject({
      param: 'payouts',
      expected: 'a list of 1 to 10,000 payouts',
    });
  });

  it('has a long body refused by its Content-Length alone', async () => {
    limiter.takeItems(accountId, 20_000);
    const { hostname, port } = new URL(system.apiUrl);
    const wire = await openWire(`http://${hostname}:${port}`);
    const startMs = performance.now();
    wire.write(
      `POST /v1/batches HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n\r\n{`,
    );
    // The answer came without another byte being sent.
    expect((await wire.answer()).status).toBe(429);
    wire.destroy();
    // The unread body is received all the same, so the next request has to wait.
    expect(performance.now() - startMs).toBeGreaterThan(3_900);
  });

  it.each(['/v1/batches', '/v1/payouts'])(
    'is told that a body is too large for %s, even if it has no items for it and never will',
    async (path) => {
      const { hostname, port } = new URL(system.apiUrl);
      const wire = await openWire(`http://${hostname}:${port}`);
      const startMs = performance.now();
      wire.write(
        `POST ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${apiKey}\r\nContent-Type: application/json\r\nContent-Length: 20000000\r\n\r\n{`,
      );
      const answer = await wire.answer();
      expect(answer.status).toBe(413);
      expect(JSON.parse(answer.body)).toMatchObject({ code: 'body_too_large' });
      expect(answer.headers.get('connection')).toBe('close');
      expect(answer.headers.has('retry-after')).toBe(false);
      await wire.closed;
      // What arrived until then costs as much as that of a body which is refused for the quota.
      expect(performance.now() - startMs).toBeGreaterThan(3_900);
      expect(itemsLeft(await client('GET /v1/payouts'))).toBe('20999');
    },
  );

  const zipped = (bytes: Uint8Array) => ({
    raw: { contentType: 'application/json', body: bytes },
    headers: { 'content-encoding': 'gzip' },
  });

  it('uses items for what was read of a body, even of a refused one', async () => {
    const send = () => client('POST /v1/batches', zipped(gzipSync(Buffer.alloc(8_000_000, ' '))));
    const answers = [await send(), await send()];
    expect(answers.map(({ status }) => status)).toEqual([400, 400]);
    expect(answers.map(itemsLeft)).toEqual(['11000', '1000']);
    const refused = await send();
    expect(refused.status).toBe(429);
    // 30,000 bytes were read; after this time there is quota for as many again.
    expect(refused.headers.get('retry-after')).toBe('19');
    // From now on a body of unknown length is not read at all.
    expect((await send()).headers.get('retry-after')).toBe('10');
    nowMs += 19_000;
    expect((await send()).status).toBe(400);
  });

  const corruptGzip = gzipSync(Buffer.alloc(8_000_000, ' '));
  corruptGzip.fill(0, corruptGzip.length - 8);

  it.each([
    ['is too long', 413, gzipSync(Buffer.alloc(9_000_000, ' '))],
    ['is corrupt at its end', 400, corruptGzip],
  ])('uses items for what was decompressed of a body that %s', async (_, status, bytes) => {
    expect((await client('POST /v1/batches', zipped(bytes))).status).toBe(status);
    const left = Number(itemsLeft(await client('GET /v1/payouts')));
    expect(left).toBeLessThan(11_500);
  });

  it('in debt has expensive requests refused without effect', async () => {
    const json = { payouts: Array.from({ length: 200 }, () => payout) };
    const id = textOf(await client('POST /v1/batches', { json }), 'id');
    expect(itemsLeft(await client(`GET /v1/batches/${id}`))).toBe('20798');
    limiter.takeItems(accountId, 25_000, 'afterwards');
    nowMs += 1_000;
    for (const heavy of [
      'GET /v1/corridors',
      `GET /v1/batches/${id}`,
      `POST /v1/batches/${id}/cancel`,
    ]) {
      const refused = await client(heavy);
      expect(refused, heavy).toMatchObject({ status: 429, body: { code: 'rate_limited' } });
    }
    const canceled = await system.database`
      select from batches where id = ${id} and canceled_at is not null`;
    expect(canceled.count).toBe(0);
    expect((await client('GET /v1/balances')).status).toBe(200);
    nowMs += 10_000;
    expect((await client('GET /v1/corridors')).status).toBe(200);
    expect((await client(`GET /v1/batches/${id}`)).status).toBe(200);
  });

  it('without items can send single payouts, except those with bodies of 800 bytes and more', async () => {
    limiter.takeItems(accountId, 25_000, 'afterwards');
    const send = (reserve: string) =>
      client('POST /v1/payouts', { json: { ...payout, metadata: { a: reserve, b: reserve } } });
    expect((await send('x'.repeat(320))).status).not.toBe(429);
    expect((await send('x'.repeat(370))).body).toMatchObject({ code: 'rate_limited' });
    nowMs += 10_000;
    expect((await send('x'.repeat(370))).status).not.toBe(429);
  });

  it('uses items for long responses, and has lists refused when none are left', async () => {
    const metadata = Object.fromEntries(
      Array.from({ length: 15 }, (_, i) => [`name_${i}`, 'x'.repeat(500)]),
    );
    for (let made = 0; made < 3; made += 1) {
      await insertPayout(system.database, {
        ...{ id: newId('payout'), accountId, mode: 'test', driver: 'a test', quoteId: null },
        ...{ beneficiaryId: 'bnf_none', sourceCurrency: 'USD', destinationCurrency: 'EUR' },
        ...{ fixedSide: 'source', amount: 10_000n, reference: null, metadata },
      });
    }
    const page = await client('GET /v1/payouts');
    expect(page.status).toBe(200);
    // Three payouts of 8 KB at 800 bytes per item, and one item for the list.
    expect(Number(itemsLeft(page))).toBeLessThan(20_975);
    expect(Number(itemsLeft(page))).toBeGreaterThan(20_900);
    limiter.takeItems(accountId, 25_000, 'afterwards');
    nowMs += 500;
    const refused = await client('GET /v1/payouts');
    expect(refused).toMatchObject({ status: 429, body: { code: 'rate_limited' } });
    expect((await client('GET /v1/balances')).status).toBe(200);
    nowMs += 10_000;
    expect((await client('GET /v1/payouts')).status).toBe(200);
  });

  it('has a waiting list request refused if it gets into debt meanwhile', async () => {
    const entered = vi.spyOn(limiter, 'enter');
    onTestFinished(() => entered.mockRestore());
    const { pending } = await system.database.begin(async (sql) => {
      await sql`lock table beneficiaries in access exclusive mode`;
      const waiting = [1, 2, 3].map(() => client('GET /v1/beneficiaries'));
      await eventually('two are read and one waits', 10_000, async () => {
        const rows = await system.database`
          select from pg_locks l join pg_database d on d.oid = l.database
           where d.datname = current_database() and l.relation = 'beneficiaries'::regclass
             and not l.granted`;
        return rows.count === 2 && entered.mock.calls.length === 3 ? rows : undefined;
      });
      limiter.takeItems(accountId, 25_000, 'afterwards');
      return { pending: waiting };
    });
    const answers = await Promise.all(pending);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(2);
    const refused = answers.find(({ status }) => status === 429);
    expect(refused?.body).toMatchObject({ code: 'rate_limited' });
  });

  it('has a limited number of requests in flight, without affecting other accounts', async () => {
    // The lock keeps three quotes from being answered.
    const { refused, other, waiting } = await system.database.begin(async (sql) => {
      await sql`lock table quotes in access exclusive mode`;
      const held = Array.from({ length: limits.inFlight }, () =>
        client('POST /v1/quotes', { form: quote }),
      );
      await eventually('the requests wait', 10_000, async () => {
        const rows = await system.database`
          select from pg_locks l join pg_database d on d.oid = l.database
           where d.datname = current_database() and l.relation = 'quotes'::regclass
             and not l.granted`;
        return rows.count === limits.inFlight ? rows : undefined;
      });
      const { apiKey } = await createTestAccount(system.database);
      return {
        refused: await client('GET /v1/account'),
        other: await createClient(system.apiUrl, apiKey)('GET /v1/account'),
        waiting: held,
      };
    });
    expect(refused.status).toBe(429);
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(refused.body).toMatchObject({
      code: 'too_many_in_flight',
      expected: 'at most 3 requests at a time by this account',
    });
    expect(other.status).toBe(200);
    for (const answer of await Promise.all(waiting)) expect(answer.status).toBe(201);
    nowMs += 500;
    expect((await client('GET /v1/account')).status).toBe(200);
  });
});

describe('the connections of an account', () => {
  const request = () =>
    `GET /v1/account HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${apiKey}\r\n\r\n`;
  const send = async (wire: Wire) => {
    nowMs += 500;
    wire.write(request());
    return (await wire.answer()).status;
  };

  /** The API behind the same HTTP server as in production. */
  const listen = async (strangerIdleMs: number) => {
    const handle = system.app.callback();
    const { server } = createHttpServer(
      (request, response) => void handle(request, response),
      pino({ level: 'silent' }),
      trustProxies([]),
      { ...httpLimits, strangerIdleMs },
    );
    onTestFinished(() => void server.close());
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    return () => openWire(`http://127.0.0.1:${port}`);
  };

  it('are at most twice its requests in flight; one more closes the longest idle', async () => {
    const open = await listen(30_000);
    const wires = await Promise.all(Array.from({ length: 2 * limits.inFlight }, open));
    for (const wire of wires) expect(await send(wire)).toBe(200);
    const [first, second, ...others] = wires;
    if (first === undefined || second === undefined) throw new Error('No connections were opened.');
    // Uses the first connection, so that it is no longer the one idle longest.
    expect(await send(first)).toBe(200);
    const last = await open();
    expect(await send(last)).toBe(200);
    expect(await second.closed).toBe('');
    for (const wire of [first, last, ...others]) {
      expect(await send(wire)).toBe(200);
      wire.destroy();
    }
  });

  it('do not include one whose requests were all refused, which is closed soon', async () => {
    const open = await listen(200);
    await useUp();
    const wire = await open();
    wire.write(request());
    expect((await wire.answer()).status).toBe(429);
    const isOpen = { now: true };
    void wire.closed.then(() => {
      isOpen.now = false;
    });
    await eventually('the connection is closed', 10_000, () => !isOpen.now || undefined);
  });
});

describe('the limit of an account does not apply to', () => {
  it.each([
    ['a health check', 'GET /livez', 200],
    ['a callback of a rail', 'POST /rails/sandbox/callbacks', 401],
  ])('%s', async (_case, request, status) => {
    await useUp(limits.burst + 1);
    const answer = await client(request);
    expect(answer.status).toBe(status);
    expect(answer.headers.has('ratelimit')).toBe(false);
  });

  it('requests without a valid key', async () => {
    const stranger = createClient(system.apiUrl, createApiKey('test'));
    for (let sent = 0; sent <= limits.burst; sent += 1) {
      const answer = await stranger('GET /v1/account');
      expect(answer.status).toBe(401);
      expect(textOf(answer, 'code')).toBe('api_key_invalid');
      expect(answer.headers.has('ratelimit')).toBe(false);
    }
  });

  it('invented keys, which have a limit per address that leaves customers alone', async () => {
    const stranger = () => createClient(system.apiUrl, createApiKey('test'))('GET /v1/account');
    expect((await client('GET /v1/account')).status).toBe(200);
    // A different key each time, so that remembering wrong keys would not help.
    const answers: ApiAnswer[] = [];
    const isRefused = ({ status }: ApiAnswer) => status === 429;
    while (answers.length < 2_000 && !answers.some(isRefused)) {
      answers.push(...(await Promise.all(Array.from({ length: 40 }, stranger))));
    }
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401, 429]));
    const refused = answers.find(isRefused);
    expect(refused?.headers.get('retry-after')).toBe('1');
    expect(refused?.body).toMatchObject({ code: 'rate_limited', param: 'Authorization' });
    expect((await client('GET /v1/account')).status).toBe(200);
  });
});
