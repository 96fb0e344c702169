import { pino } from 'pino';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { sweepIfLate } from '../../src/activities/maintenance.js';
import { connectDatabase } from '../../src/db/client.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { textOf, untilStatus } from '../fixtures/client.js';
import { addPayouts, analyze, disableAutovacuum } from '../fixtures/payoutFill.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { startSystem, type TestSystem } from '../servers/system.js';

/** Payouts in the full tables, and the most rows that a payout may read there: it reads some 300. */
const payouts = 20_000;
const mostRead = 1_000;

let system: TestSystem;
let receiver: Receiver;
let stored: string;

beforeAll(async () => {
  [system, receiver] = await Promise.all([startSystem(), startReceiver()]);
  const { client } = system;
  // New statistics would make every connection plan anew.
  await disableAutovacuum(system);
  stored = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  await client('POST /v1/webhook_endpoints', {
    form: { url: receiver.url, 'events[]': 'payout.settled' },
  });
});
afterAll(async () => {
  await system.stop();
  await receiver.close();
});

/** Sends a payout at a quote, repeats its request, and waits until its webhook has arrived. */
async function pay(key: string): Promise<void> {
  const { client } = system;
  const corridor = { source_currency: 'USD', destination_currency: 'EUR', amount: '1000' };
  const quote = textOf(await client('POST /v1/quotes', { form: corridor }), 'id');
  const request = { form: { quote, beneficiary: stored }, idempotencyKey: key };
  const id = textOf(await client('POST /v1/payouts', request), 'id');
  expect(textOf(await client('POST /v1/payouts', request), 'id')).toBe(id);
  await untilStatus(client, id, 'settled');
  await receiver.next(({ body }) => body.includes(id));
}

/** Sends payouts ten at a time, so that most of the connections take part, and sweeps. */
async function payAll(round: string): Promise<number> {
  const keys = Array.from({ length: 10 }, (_, index) => `${round}-${index}`);
  for (const part of ['first', 'second', 'third']) {
    await Promise.all(keys.map((key) => pay(`${key}-${part}`)));
  }
  await sweepIfLate({ ...system, database: system.worker, log: pino({ level: 'silent' }) });
  await system.client('GET /v1/balances');
  return 3 * keys.length;
}

/** Returns how many rows and index entries all connections have read of each table, the most first. */
async function rowsRead() {
  const { database } = system;
  // A connection reports what it has read at the latest when it ends.
  await database`
    select pg_terminate_backend(pid, 10_000) from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid()`;
  return database<{ read: string; rows: number }[]>`
    select relname as read, seq_tup_read::float8 as rows from pg_stat_user_tables
     union all select indexrelname, idx_tup_read from pg_stat_user_indexes
     order by rows desc`;
}

it('reads few rows of full tables, by plans that were made while the tables were empty', async () => {
  await payAll('empty');
  await analyze(system);
  await payAll('small');
  await fill();
  const count = await payAll('full');
  const read = await rowsRead();
  const all = read.reduce((sum, { rows }) => sum + rows, 0);
  expect(all, JSON.stringify(read.slice(0, 5))).toBeLessThan(count * mostRead);
});

it('writes a quote to no index that nothing reads and no rule needs', async () => {
  const indexes = await system.database<{ name: string }[]>`
    select indexrelname as name from pg_stat_user_indexes where relname = 'quotes' order by name`;
  expect(indexes.map(({ name }) => name)).toEqual([
    'quotes_pkey',
    'quotes_unused',
    'quotes_used_by_key',
  ]);
});

/** Fills the tables, and forgets what that has read. */
async function fill(): Promise<void> {
  const { database, databaseUrl: url } = system;
  const filling = connectDatabase({ url, poolSize: 1, applicationName: 'filling' });
  await addPayouts(filling, payouts);
  await filling.unsafe(`
    insert into webhook_endpoints (id, account_id, url, events, api_version)
      select 'we_' || n, 'acc_' || n, 'https://dead.example', '{none}', '2026-06-01'
        from generate_series(0, 1000) n;
    insert into deliveries (event_id, endpoint_id, attempts, next_attempt_at, last_attempt_at)
      select id, 'we_0', 3, now() + interval '1 hour', now() from events;
    insert into idempotency_keys (account_id, key, route, fingerprints, object_id)
      select account_id, 'key ' || id, 'POST /v1/payouts', '{}', id from payouts;
    insert into rail_inbox (rail, rail_event_id, rail_key, payout_id, fact, applied_at)
      select 'sandbox', 'old:' || id, id, id, '{"kind": "settled"}', now() from payouts`);
  await filling.end({ timeout: 5 });
  await database`select pg_stat_reset()`;
}
