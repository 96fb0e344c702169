import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { transaction } from '../../src/db/client.js';
import { recordAttempts } from '../../src/db/deliveries.js';
import { recordWebhookEvents } from '../../src/db/events.js';
import { redeliverRange } from '../../src/db/redelivery.js';
import { lockWebhookEndpoint } from '../../src/db/webhookEndpoints.js';
import { openPlanReader } from '../assertions/plans.js';
import { startReceiver } from '../fakes/receiver.js';
import { createClient, textOf } from '../fixtures/client.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import { recordEvents } from '../fixtures/webhookEvents.js';
import { createTestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

async function openAccount() {
  const { account, apiKey } = await createTestAccount(system.database);
  const client = createClient(system.apiUrl, apiKey);
  const receiver = await startReceiver();
  onTestFinished(() => receiver.close());
  const addEndpoint = async (...events: readonly string[]) => {
    const json = { url: receiver.url, events };
    return textOf(await client('POST /v1/webhook_endpoints', { json }), 'id');
  };
  return { accountId: account.id, client, receiver, addEndpoint };
}

/** Writes an event of each type, in this order. */
async function recordTypes(
  accountId: string,
  types: readonly ('payout.sent' | 'payout.settled')[],
): Promise<void> {
  const { id: subjectId } = await requestPayout(system.database, accountId);
  const facts = {
    status: 'sent',
    statusReason: null,
    settledAt: null,
    returnedMinor: null,
  } as const;
  const events = types.map((type) => ({ accountId, type, subjectId, facts }));
  await recordWebhookEvents(system.database, events);
}

/** The IDs of an account's events, in order of their sequence numbers. */
async function idsOf(accountId: string): Promise<readonly string[]> {
  const rows = await system.database<{ id: string }[]>`
    select id from events where account_id = ${accountId} order by sequence`;
  return rows.map(({ id }) => id);
}

/** The statuses of an endpoint's deliveries, in the order of the events. */
async function statusesOf(endpoint: string): Promise<readonly string[]> {
  const rows = await system.database<{ status: string }[]>`
    select d.status from deliveries d join events e on e.id = d.event_id
     where d.endpoint_id = ${endpoint} order by e.sequence`;
  return rows.map(({ status }) => status);
}

const pending = async (endpoint: string) =>
  (await statusesOf(endpoint)).filter((status) => status === 'pending').length;

/** The `webhook-id` of everything received, sorted because the order of arrival varies. */
const arrived = (received: readonly { readonly headers: Readonly<Record<string, string>> }[]) =>
  received.map(({ headers }) => headers['webhook-id'] ?? '').toSorted();

describe('a redelivery by a range of sequences', () => {
  it('sends each event of the range once, whatever its status, and no other', async () => {
    const { accountId, client, receiver, addEndpoint } = await openAccount();
    const endpoint = await addEndpoint('payout.sent');
    const types = Array.from({ length: 40 }, (_, index) =>
      index % 4 === 3 ? 'payout.settled' : 'payout.sent',
    );
    await recordTypes(accountId, types);
    // Sequences 1 to 40; the events of another type have no delivery.
    const outcomes = ['delivered', 'exhausted', 'canceled'];
    const ids = await idsOf(accountId);
    for (const [index, id] of ids.entries()) {
      await system.database`
        update deliveries set status = ${outcomes[index % 3] ?? ''}, attempts = 12
         where event_id = ${id}`;
    }
    const path = `POST /v1/webhook_endpoints/${endpoint}/redeliver`;
    const request = { json: { from_sequence: 5, to_sequence: 30 }, idempotencyKey: 'range-5-30' };
    const expected = ids
      .filter((_, index) => index >= 4 && index < 30 && index % 4 !== 3)
      .toSorted();
    expect((await client(path, request)).body).toEqual({
      ...{ object: 'redelivery', webhook_endpoint: endpoint },
      ...{ pending: expected.length, has_more: false },
    });
    await expect.poll(() => pending(endpoint), { timeout: 20_000 }).toBe(0);
    expect(arrived(receiver.received)).toEqual(expected);

    const repeated = await client(path, request);
    expect(repeated.headers.get('idempotent-replayed')).toBe('true');
    expect(repeated.body).toMatchObject({ pending: 0, has_more: false });
    expect(await pending(endpoint)).toBe(0);
  });

  it('sends events from before the endpoint existed and while it was disabled', async () => {
    const { accountId, client, receiver, addEndpoint } = await openAccount();
    await recordEvents(system.database, accountId, 5);
    const endpoint = await addEndpoint('*');
    const path = `POST /v1/webhook_endpoints/${endpoint}`;
    await client(path, { json: { status: 'disabled' } });
    await recordEvents(system.database, accountId, 5);
    expect(await statusesOf(endpoint)).toEqual([]);
    const form = { from_sequence: '1', to_sequence: '10' };
    expect((await client(`${path}/redeliver`, { form })).status).toBe(409);
    await client(path, { json: { status: 'enabled' } });
    const [one, two] = await Promise.all([
      client(`${path}/redeliver`, { form }),
      client(`${path}/redeliver`, { form }),
    ]);
    expect([one.status, two.status]).toEqual([200, 200]);
    await expect.poll(() => statusesOf(endpoint)).toEqual(Array(10).fill('delivered'));
    expect(new Set(arrived(receiver.received))).toEqual(new Set(await idsOf(accountId)));
  });

  it('brings waiting deliveries forward, and neither touches nor awaits attempts in progress', async () => {
    const { accountId, client, addEndpoint } = await openAccount();
    const endpoint = await addEndpoint('*');
    await recordEvents(system.database, accountId, 4);
    const [first = '', second = '', ...others] = await idsOf(accountId);
    const nextAttemptAt = new Date(Date.now() + 20_000);
    await system.database`
      update deliveries set attempts = 3, next_attempt_at = ${nextAttemptAt}
       where event_id = ${first}`;
    await system.database`
      update deliveries set attempts = 3, next_attempt_at = '2100-01-01'
       where event_id = ${second}`;
    await system.database`
      update deliveries set status = 'delivered' where event_id = any (${others})`;
    const ended = {
      endpointId: endpoint,
      attempts: 3,
      groupId: null,
      nextAttemptAt,
      url: 'http://127.0.0.1:1/',
      status: 'delivered',
      at: new Date(),
    } as const;
    const attempt = {
      latencyMs: 1,
      httpStatus: 200,
      error: null,
      answer: null,
      retryInMs: 0,
    };
    await transaction(system.database, async (sql) => {
      await recordAttempts(sql, [{ ...ended, ...attempt, eventId: first }]);
      const range = { json: { from_sequence: 1, to_sequence: 4 } };
      const response = await client(`POST /v1/webhook_endpoints/${endpoint}/redeliver`, range);
      // If it had waited for the row locked here, it would have timed out.
      expect(response.status).toBe(200);
    });
    await expect
      .poll(() => statusesOf(endpoint), { timeout: 20_000 })
      .toEqual(Array(4).fill('delivered'));
    const rows = await system.database`
      select attempts from deliveries where event_id = any (${[first, second]}) order by event_id = ${second}`;
    // The attempt in progress was recorded normally; the other delivery continued on its schedule.
    expect(rows.map(({ attempts }) => attempts)).toEqual([3, 4]);
  });

  it('is read by index, however many deliveries the endpoint has had', async () => {
    const { accountId, addEndpoint } = await openAccount();
    const id = await addEndpoint('*');
    await recordEvents(system.database, accountId, 6_000);
    await system.database`update deliveries set status = 'delivered' where endpoint_id = ${id}`;
    await system.database`
      delete from deliveries d using events e
       where e.id = d.event_id and d.endpoint_id = ${id} and e.sequence between 120 and 139`;
    await system.database`analyze deliveries, events`;
    const reader = await openPlanReader(system.databaseUrl);
    onTestFinished(() => reader.close());
    const endpoint = await lockWebhookEndpoint(reader.database, accountId, id);
    if (endpoint === undefined) throw new Error('There is no endpoint.');
    const plans = await reader.plansOf(() => redeliverRange(reader.database, endpoint, 100n, 149n));
    expect(await pending(id)).toBe(50);
    for (const plan of plans) {
      expect(plan.wholeTables, plan.text).toEqual([]);
      expect(plan.rowsRead, plan.text).toBeLessThanOrEqual(200);
    }
  });

  it('is refused to another account, and with both kinds of parameters', async () => {
    const { client, addEndpoint } = await openAccount();
    const endpoint = await addEndpoint('*');
    const path = `POST /v1/webhook_endpoints/${endpoint}/redeliver`;
    const json = { from_sequence: 1, to_sequence: 10 };
    const other = await openAccount();
    expect((await other.client(path, { json })).status).toBe(404);
    const since = '2026-11-21T12:00:00Z';
    for (const range of [json, { from_sequence: 1 }, { to_sequence: 10 }]) {
      expect(await client(path, { json: { ...range, since } })).toMatchObject({
        status: 400,
        body: { code: 'parameters_exclusive', param: 'since' },
      });
    }
    const { body } = await client(path, { json: { to_sequence: 20_000, since } });
    expect(body).toMatchObject({ expected: 'left out when to_sequence is sent' });
    const alone = await client(path, { json: { to_sequence: 20_000 } });
    expect(alone.body).toMatchObject({ code: 'parameter_missing', param: 'since' });
    expect(alone.body['errors']).toHaveLength(1);
  });
});
