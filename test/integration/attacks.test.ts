import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'undici';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createApiKey, hashOfKey, insertApiKey } from '../../src/db/apiKeys.js';
import { type ApiProcess, startApiProcess } from '../servers/apiProcess.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  withoutTimeouts,
} from '../servers/database.js';
import { type Figures, watchVictim } from './victim.js';

/**
 * Requests of one customer or stranger must not slow down those of another. Each attack is limited in
 * size and duration, and targets only this machine. The limits are wide and relative to a second process
 * that is not attacked, because the machine may be busy: what they exclude took many seconds, or
 * gigabytes. The figures are printed; on an otherwise idle machine they show whether the victim's p95 is
 * at most twice that without an attack.
 */
let data: TestDatabase;
let api: ApiProcess;
/** The API process that is not attacked. */
let control: ApiProcess;
let attacker: string;
let victim: string;

beforeAll(async () => {
  data = await createTestDatabase();
  const opened = await createTestAccount(data.database);
  attacker = opened.apiKey;
  ({ apiKey: victim } = await createTestAccount(data.database));
  await fillDisjointPayouts(opened.account.id);
  // The limits in production.
  const limits = {
    RATE_LIMIT_PER_SECOND: '100',
    RATE_LIMIT_BURST: '200',
    IN_FLIGHT_LIMIT: '50',
    ITEM_LIMIT_PER_SECOND: '1000',
  };
  [api, control] = await Promise.all([
    startApiProcess(data.url, limits),
    startApiProcess(data.url, limits),
  ]);
  await watch(() => delay(1_000));
  report('idle', await watch(() => delay(2_000)));
}, 240_000);
afterAll(async () => {
  await Promise.all([api?.part.stop(), control?.part.stop()]);
  await data?.drop();
});

const payouts = 40_000;
/** Payouts with the largest metadata that was possible before it was limited. */
const largePayouts = 100;

/** Writes payouts: one half has one metadata value, the other half another, and some have a lot. */
async function fillDisjointPayouts(accountId: string): Promise<void> {
  const metadata = `case when i <= ${largePayouts} then (select jsonb_object_agg('name_' || n, repeat('x', 500))
      from generate_series(1, 15) n) else jsonb_build_object('half', i % 2, 'env', 'prod') end`;
  await withoutTimeouts(data.database, async (sql) => {
    await sql.unsafe(`
      insert into payouts (id, account_id, mode, driver, status, beneficiary_id, source_currency,
          destination_currency, amount, reference, metadata, requested_at, source_minor, fee_minor,
          net_minor, receive_minor, rail)
        select 'po_' || md5(i::text), '${accountId}', 'test', 'a test', 'pending', 'bnf_1', 'USD',
               'EUR', 10000, case when i % 2 = 0 then 'even' else 'odd' end, ${metadata},
               now() - make_interval(secs => i), null, null, null, null, null
          from generate_series(1, ${payouts}) i`);
  });
  await withoutTimeouts(data.database, async (sql) => {
    await sql`analyze`;
  });
}

function report(name: string, figures: object): void {
  process.stdout.write(`${name}: ${JSON.stringify(figures)}\n`);
}

const watch = (work: () => Promise<unknown>, freshConnections = false) =>
  watchVictim({ attacked: api, control }, victim, work, freshConnections);

/** The victim was served about as fast as by the other process, and the API's memory did not grow. */
function wasServed(name: string, figures: Figures, slackMs = 2_500): void {
  report(name, figures);
  expect(figures.attacked.failed).toBe(0);
  expect(figures.attacked.samples).toBeGreaterThan(20);
  expect(figures.attacked.p95).toBeLessThan(4 * figures.control.p95 + slackMs);
  expect(figures.grownMb).toBeLessThan(150);
}

type Sent = { readonly path: string; readonly body?: string | Buffer; readonly type?: string };

/** Sends on this many connections, each as soon as it gets an answer; returns the statuses. */
async function flood(lanes: number, forMs: number, make: () => Sent, key = attacker) {
  const pool = new Pool(api.url, { connections: lanes });
  const statuses = new Map<number, number>();
  const endMs = performance.now() + forMs;
  const lane = async () => {
    while (performance.now() < endMs) {
      const { path, body, type = 'application/json' } = make();
      const method = body === undefined ? 'GET' : 'POST';
      const headers = {
        authorization: `Bearer ${key}`,
        ...(body === undefined ? {} : { 'content-type': type }),
      };
      const answer = await pool
        .request({ method, path, headers, body: body ?? null })
        .catch(() => undefined);
      await answer?.body.dump().catch(() => undefined);
      const status = answer?.statusCode ?? 0;
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  await pool.destroy();
  return statuses;
}

/** A body with this many unknown names, each of the maximum length that is compared. */
function unknownNames(count: number): string {
  const names = Array.from({ length: count }, (_, i) => `"${String(i).padStart(62, 'x')}":1`);
  return `{${names.join(',')}}`;
}

describe('requests of other customers are not delayed by', () => {
  it('unknown names, which are compared with the known ones', async () => {
    const bodies = [
      { path: '/v1/batches', body: unknownNames(119_000) },
      { path: '/v1/payouts', body: unknownNames(3_800) },
    ] as const;
    let sent = 0;
    // Long enough for the quota to allow one more of the longest bodies: two are admitted at once.
    const figures = await watch(() => flood(2, 10_000, () => bodies[sent++ % 2 === 0 ? 0 : 1]));
    wasServed('unknown names', figures);
  }, 120_000);

  it('filter values that occur nowhere', async () => {
    const events = JSON.stringify(Array.from({ length: 18_000 }, (_, i) => `payout.${i}`));
    const body = `{"url":"https://example.com/","events":${events}}`;
    const figures = await watch(() =>
      flood(2, 4_000, () => ({ path: '/v1/webhook_endpoints', body })),
    );
    wasServed('unknown values', figures);
  }, 120_000);

  it('filters that are each frequent but never match together', async () => {
    const queries = [
      'metadata[half]=1&reference=even',
      'metadata[env]=prod&metadata[half]=7',
      'metadata[half]=0&reference=odd&status=pending',
    ];
    let sent = 0;
    let statuses = new Map<number, number>();
    const figures = await watch(async () => {
      statuses = await flood(48, 5_000, () => {
        sent += 1;
        return { path: `/v1/payouts?${queries[sent % queries.length]}` };
      });
    });
    report('list filters were answered', Object.fromEntries(statuses));
    wasServed('list filters', figures);
  }, 120_000);

  it('bodies that are longer than the route allows, which cost no items', async () => {
    const { apiKey } = await createTestAccount(data.database);
    const bodies: readonly Sent[] = [
      { path: '/v1/payouts', body: `{"reference":"${'x'.repeat(1_000_000)}"}` },
      { path: '/v1/batches', body: `{"payouts":"${'x'.repeat(9_000_000)}"}` },
    ];
    let sent = 0;
    let statuses = new Map<number, number>();
    const figures = await watch(async () => {
      const make = () => bodies[sent++ % bodies.length] ?? { path: '/' };
      statuses = await flood(48, 6_000, make, apiKey);
    });
    report('long bodies were answered', Object.fromEntries(statuses));
    wasServed('long bodies', figures);
  }, 120_000);

  it('the whole tables of rates and corridors', async () => {
    const { apiKey } = await createTestAccount(data.database);
    const lanes = (path: string) => flood(25, 5_000, () => ({ path }), apiKey);
    let taken: readonly Map<number, number>[] = [];
    const figures = await watch(async () => {
      taken = await Promise.all([lanes('/v1/rates'), lanes('/v1/corridors')]);
    });
    report('tables were answered', taken.map(Object.fromEntries));
    wasServed('tables', figures);
  }, 120_000);

  it('answers that are not read', async () => {
    const sockets: Socket[] = [];
    const { hostname, port } = new URL(api.url);
    const request = `GET /v1/payouts?limit=100&metadata[name_1]=${'x'.repeat(500)} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${attacker}\r\n\r\n`;
    for (let opened = 0; opened < 40; opened += 1) {
      const socket = connect(Number(port), hostname);
      socket.on('error', () => undefined);
      socket.pause();
      sockets.push(socket);
      await once(socket, 'connect');
    }
    const figures = await watch(async () => {
      // As many requests per second as the account may send, rotating over the connections.
      for (let sent = 0; sent < 800; sent += 1) {
        sockets[sent % sockets.length]?.write(request);
        if (sent % 10 === 9) await delay(100);
      }
    });
    for (const socket of sockets) socket.destroy();
    // Serving the pages also takes processor time, which is scarce; this test is about the memory.
    wasServed('unread answers', figures, 20_000);
  }, 120_000);

  it('previews of large batches by two keys of one account', async () => {
    const owner = await createTestAccount(data.database);
    const second = createApiKey('test');
    await insertApiKey(data.database, {
      accountId: owner.account.id,
      keyHash: hashOfKey(second),
      lastFour: second.slice(-4),
      name: 'second',
    });
    const item = { beneficiary: 'bnf_none', source_currency: 'USD', amount: 5_000 };
    const body = JSON.stringify({
      payouts: Array.from({ length: 10_000 }, () => item),
      validate_only: true,
    });
    const taken: Map<number, number>[] = [];
    const figures = await watch(async () => {
      const keys = [owner.apiKey, second];
      const make = () => ({ path: '/v1/batches', body });
      taken.push(...(await Promise.all(keys.map((key) => flood(2, 6_000, make, key)))));
    });
    const admitted = taken.reduce((sum, statuses) => sum + (statuses.get(200) ?? 0), 0);
    report('previews', { admitted, ...figures });
    // Two at once and one every ten seconds, whichever key is used.
    expect(admitted).toBeGreaterThan(0);
    expect(admitted).toBeLessThanOrEqual(4);
    expect(figures.attacked.failed).toBe(0);
  }, 120_000);

  it('idle connections, even at the maximum number of connections', async () => {
    const { hostname, port } = new URL(api.url);
    const sockets = new Set<Socket>();
    const open = async (index: number) => {
      // As if from thirty addresses; all of 127/8 is this machine.
      const localAddress = `127.0.1.${(index % 30) + 1}`;
      const socket = connect({ port: Number(port), host: hostname, localAddress });
      socket.on('error', () => undefined).resume();
      sockets.add(socket);
      socket.once('close', () => sockets.delete(socket));
      await Promise.race([once(socket, 'connect'), once(socket, 'close')]).catch(() => undefined);
      // One request that needs no key, then silence.
      if (!socket.destroyed) socket.write('GET /livez HTTP/1.1\r\nHost: a\r\n\r\n');
    };
    for (let opened = 0; opened < 5_500; opened += 50) {
      await Promise.all(Array.from({ length: 50 }, (_, index) => open(opened + index)));
    }
    report('idle connections that stay open', { count: sockets.size });
    const figures = await watch(() => delay(3_000), true);
    for (const socket of sockets) socket.destroy();
    wasServed('idle connections', figures);
  }, 120_000);
});
