import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createApiKey, hashOfKey } from '../../src/api/apiKey.js';
import { createLimiter } from '../../src/api/rateLimit.js';
import { insertApiKey } from '../../src/db/apiKeys.js';
import { type ApiClient, createClient, textOf } from '../support/client.js';
import { createTestAccount } from '../support/database.js';
import { eventually } from '../support/eventually.js';
import { startSystem, type TestSystem } from '../support/system.js';

const limits = { perSecond: 2, burst: 4, inFlight: 3 };
let nowMs = 0;
let system: TestSystem;
let client: ApiClient;
let accountId: string;

beforeAll(async () => {
  // The clock of the limits stands still until a test moves it.
  const limiter = createLimiter(limits, () => nowMs);
  system = await startSystem({ startsWorker: false, limiter });
});
afterAll(() => system.stop());

beforeEach(async () => {
  const opened = await createTestAccount(system.database);
  client = createClient(system.apiUrl, opened.apiKey);
  accountId = opened.account.id;
});

async function useUp(times: number = limits.burst): Promise<void> {
  for (let sent = 0; sent < times; sent += 1) await client('GET /v1/account');
}

const quote = { source_currency: 'USD', destination_currency: 'EUR', amount: '10000' };

describe('a key', () => {
  it.each([
    ['answered', 'GET /v1/account', 200],
    ['malformed', 'POST /v1/quotes', 400],
    ['about nothing', 'GET /v1/payouts/po_none', 404],
    ['of no route', 'GET /v1/nothing', 404],
    ['of another method', 'DELETE /v1/quotes', 405],
  ])('is told what is left by a request that is %s', async (_case, request, status) => {
    const answer = await client(request);
    expect(answer.status).toBe(status);
    expect(answer.headers.get('ratelimit-policy')).toBe('"default";q=4;w=2');
    expect(answer.headers.get('ratelimit')).toBe('"default";r=3;t=1');
    expect(answer.headers.has('retry-after')).toBe(false);
  });

  it('that sends more is refused with 429 and told when to ask again', async () => {
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
      expected: 'at most 2 requests a second with this key, and 4 at once',
      request_id: refused.headers.get('request-id'),
    });
    nowMs += 500;
    expect((await client('GET /v1/account')).status).toBe(200);
    expect((await client('GET /v1/account')).status).toBe(429);
  });

  it('that is refused has its idempotency key left for the request that is not', async () => {
    await useUp();
    const send = () => client('POST /v1/quotes', { form: quote, idempotencyKey: 'once' });
    expect((await send()).status).toBe(429);
    nowMs += 500;
    const made = await send();
    expect(made.status).toBe(201);
    expect(made.headers.has('idempotent-replayed')).toBe(false);
  });

  it('does not use up what another key has, not even one of its account', async () => {
    const other = createApiKey('test');
    const row = { accountId, keyHash: hashOfKey(other), lastFour: other.slice(-4), name: 'other' };
    await insertApiKey(system.database, row);
    await useUp();
    expect((await client('GET /v1/account')).status).toBe(429);
    const answer = await createClient(system.apiUrl, other)('GET /v1/account');
    expect(answer.headers.get('ratelimit')).toBe('"default";r=3;t=1');
  });

  it('sends a batch as one request', async () => {
    const payout = { source_currency: 'USD', amount: '100', beneficiary: 'bnf_none' };
    const json = { payouts: Array.from({ length: 50 }, () => payout) };
    const answer = await client('POST /v1/batches', { json });
    expect(answer.status).toBe(202);
    expect(answer.headers.get('ratelimit')).toBe('"default";r=3;t=1');
  });

  it('has only so many requests in flight, and others go on', async () => {
    // The lock keeps three quotes from being answered.
    const { refused, other, waiting } = await system.database.begin(async (sql) => {
      await sql`lock table quotes in access exclusive mode`;
      const held = Array.from({ length: limits.inFlight }, () =>
        client('POST /v1/quotes', { form: quote }),
      );
      await eventually('the requests wait', 10_000, async () => {
        const rows = await system.database`
          select from pg_locks where relation = 'quotes'::regclass and not granted`;
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
      expected: 'at most 3 requests at a time with this key',
    });
    expect(other.status).toBe(200);
    for (const answer of await Promise.all(waiting)) expect(answer.status).toBe(201);
    nowMs += 500;
    expect((await client('GET /v1/account')).status).toBe(200);
  });
});

describe('nobody is limited who', () => {
  it.each([
    ['asks for the health of the process', 'GET /livez', 200],
    ['asks whether it is ready', 'GET /readyz', 200],
    ['is a rail', 'POST /rails/sandbox/callbacks', 401],
  ])('%s', async (_case, request, status) => {
    await useUp(limits.burst + 1);
    const answer = await client(request);
    expect(answer.status).toBe(status);
    expect(answer.headers.has('ratelimit')).toBe(false);
  });

  it('has no valid key', async () => {
    const stranger = createClient(system.apiUrl, createApiKey('test'));
    for (let sent = 0; sent <= limits.burst; sent += 1) {
      const answer = await stranger('GET /v1/account');
      expect(answer.status).toBe(401);
      expect(textOf(answer, 'code')).toBe('api_key_invalid');
      expect(answer.headers.has('ratelimit')).toBe(false);
    }
  });
});
