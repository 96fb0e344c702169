import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Sql } from '../../src/db/client.js';
import { eventually } from '../assertions/eventually.js';
import { openLine } from '../fakes/line.js';
import { type ApiAnswer, type ApiClient, createClient, textOf } from '../fixtures/client.js';
import { createTestAccount } from '../servers/database.js';
import { startSecondApi } from '../servers/secondApi.js';
import { startSystem, type TestSystem } from '../servers/system.js';

/**
 * A client that gets a 503 with an ID looks up the object, and concludes from a 404 that nothing was
 * sent. An answer must therefore only name objects that exist.
 */
let system: TestSystem;
let accountId: string;
let client: ApiClient;
let apiKey: string;

beforeAll(async () => {
  system = await startSystem({ startsWorker: false });
});
afterAll(() => system.stop());
beforeEach(async () => {
  const opened = await createTestAccount(system.database);
  apiKey = opened.apiKey;
  accountId = opened.account.id;
  client = createClient(system.apiUrl, apiKey);
});

const payout = { source_currency: 'USD', amount: '10000', beneficiary: 'bnf_none' };
const writes = [
  { name: 'payout', request: 'POST /v1/payouts', json: payout, table: 'payouts' },
  { name: 'batch', request: 'POST /v1/batches', json: { payouts: [payout] }, table: 'batches' },
] as const;

/** Verifies that every object named in an answer belongs to the account. */
async function namesOnlyWhatIs(answer: ApiAnswer): Promise<void> {
  const named = JSON.stringify(answer.body).match(/\b(po|bat)_[0-9a-z]+/g) ?? [];
  const rows = await system.database<{ id: string }[]>`
    select id from payouts where account_id = ${accountId}
    union all select id from batches where account_id = ${accountId}`;
  const known = rows.map(({ id }) => id);
  expect(named.filter((id) => !known.includes(id))).toEqual([]);
}

/** Locks a table while `work` runs; statements on it time out after 3 s. */
async function whileLocked<T>(table: string, work: (sql: Sql) => Promise<T>): Promise<T> {
  return system.database
    .begin(async (sql) => {
      await sql`lock table ${sql(table)} in access exclusive mode`;
      return { result: await work(sql) };
    })
    .then(({ result }) => result);
}

describe.each(writes)('an answer of 503 or 409 to a $name', ({ name, request, json, table }) => {
  const send = (by: ApiClient, wait = false) =>
    by(request, { json, idempotencyKey: 'a-key', headers: wait ? { prefer: 'wait=30' } : {} });

  it('names the first one if it was sent before', async () => {
    const first = await send(client);
    const id = textOf(first, 'id');
    const answer = await whileLocked(table, () => send(client));
    expect(answer).toMatchObject({
      status: 503,
      body: { code: 'service_unavailable', [name]: id },
    });
    await namesOnlyWhatIs(answer);
    const again = await send(client);
    expect(textOf(again, 'id')).toBe(id);
  });

  it('names none if its key is still held by another request', async () => {
    const answer = await system.database.begin(async (sql) => {
      await sql`
        insert into idempotency_keys (account_id, key, route, fingerprints, object_id)
        values (${accountId}, 'a-key', ${request}, '{}', 'po_of_somebody')`;
      const response = await send(client);
      return { response };
    });
    expect(answer.response).toMatchObject({ status: 409, body: { code: 'request_in_progress' } });
    await namesOnlyWhatIs(answer.response);
    expect(Object.keys(answer.response.body)).not.toContain(name);
  });

  it('names none if the connection is lost before it is stored, and it is sent once', async () => {
    const line = await openRecordedLine(system.urls.api);
    const second = await startSecondApi({ ...system, urls: { ...system.urls, api: line.url } });
    const by = createClient(second.url, apiKey);
    await by('GET /v1/balances');
    const answer = await whileLocked(table, async () => {
      const asking = send(by);
      await eventually('the request waits for the table', 10_000, async () => {
        const waiting = await system.database`
          select from pg_locks l join pg_database d on d.oid = l.database
           where d.datname = current_database() and l.relation = ${table}::regclass
             and not l.granted`;
        return waiting.count > 0 ? true : undefined;
      });
      line.cut();
      return asking;
    });
    expect(answer.status).toBe(503);
    await namesOnlyWhatIs(answer);
    const again = await eventually('the next request is answered', 10_000, async () => {
      const repeated = await send(by);
      return repeated.status < 300 ? repeated : undefined;
    });
    await namesOnlyWhatIs(again);
    const kept = await system.database`
      select from idempotency_keys where account_id = ${accountId}`;
    expect(kept.count).toBe(1);
    await second.close();
    await line.close();
  });
});

it('a connection lost while a replay waits for the payout’s end names that payout', async () => {
  const id = textOf(
    await client('POST /v1/payouts', { json: payout, idempotencyKey: 'a-key' }),
    'id',
  );
  const line = await openRecordedLine(system.urls.api);
  const second = await startSecondApi({ ...system, urls: { ...system.urls, api: line.url } });
  const by = createClient(second.url, apiKey);
  await by('GET /v1/balances');
  const asking = by('POST /v1/payouts', {
    json: payout,
    idempotencyKey: 'a-key',
    headers: { prefer: 'wait=30' },
  });
  // The row has been read, so from here on the API knows that it exists.
  await line.until('pending');
  await line.close();
  const answer = await asking;
  expect(answer).toMatchObject({ status: 503, body: { payout: id } });
  await second.close();
});

/** A forwarder to the database that can be cut, and on which a test can wait for a text. */
async function openRecordedLine(target: string) {
  let received = '';
  const { url, clients, close } = await openLine(target, (client, dial) => {
    const upstream = dial();
    upstream.on('data', (data: Buffer) => {
      received = (received + data.toString('latin1')).slice(-100_000);
    });
    upstream.pipe(client);
  });
  return {
    url,
    close,
    cut: () => {
      for (const client of clients) client.destroy();
    },
    until: (words: string) =>
      eventually(
        `the database sends ${words}`,
        10_000,
        () => received.includes(words) || undefined,
      ),
  };
}
