import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { purgeAttempts } from '../../src/db/deliveries.js';
import { listDeliveries } from '../../src/db/deliveryLog.js';
import { failuresToPause } from '../../src/db/endpointHealth.js';
import { firstId } from '../../src/db/id.js';
import { wakeEndpoint } from '../../src/temporal/workflowCalls.js';
import { eventually } from '../assertions/eventually.js';
import { openPlanReader } from '../assertions/plans.js';
import { startReceiver } from '../fakes/receiver.js';
import { type ApiAnswer, type ApiClient, createClient, textOf } from '../fixtures/client.js';
import { makeDue, recordEvents } from '../fixtures/webhookEvents.js';
import { createTestAccount, untilLockWaits } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

/** An account with one endpoint that subscribes to all events, and its receiver. */
async function openListener() {
  const { account, apiKey } = await createTestAccount(system.database);
  const client = createClient(system.apiUrl, apiKey);
  const receiver = await startReceiver();
  onTestFinished(() => receiver.close());
  const json = { url: receiver.url, events: ['*'] };
  const endpoint = textOf(await client('POST /v1/webhook_endpoints', { json }), 'id');
  return { accountId: account.id, client, receiver, endpoint };
}

/** Makes the endpoint's workflow attempt the pending deliveries. */
async function attempt(endpoint: string): Promise<void> {
  await makeDue(system.database, endpoint);
  await wakeEndpoint(system.temporal, endpoint);
}

const delivery = z.looseObject({
  event: z.string(),
  status: z.string(),
  attempt_count: z.number(),
  last_latency_ms: z.number().nullable(),
});
const page = z.object({ data: z.array(delivery), has_more: z.boolean() });

async function deliveries(client: ApiClient, endpoint: string, query = '') {
  return page.parse(
    (await client(`GET /v1/webhook_endpoints/${endpoint}/deliveries${query}`)).body,
  );
}

const attempted = z.object({
  data: z.tuple([
    delivery.extend({
      attempts: z.array(
        z.object({
          at: z.string(),
          http_status: z.number().nullable(),
          latency_ms: z.number(),
          error: z.string().nullable(),
          response: z.string().nullable(),
          next_attempt_at: z.string().nullable(),
        }),
      ),
    }),
  ]),
});

describe('the log of an event', () => {
  it('has each attempt, newest first: time, status, latency, response and next attempt', async () => {
    const { accountId, client, receiver, endpoint } = await openListener();
    await recordEvents(system.database, accountId, 1);
    receiver.answerWith(503, 'no\0database');
    await attempt(endpoint);
    await expect
      .poll(async () => (await deliveries(client, endpoint)).data)
      .toMatchObject([
        { status: 'pending', attempt_count: 1, last_status: 503, last_error: 'HTTP 503' },
      ]);
    const [failed] = (await deliveries(client, endpoint)).data;
    receiver.answerWith(204);
    await attempt(endpoint);
    await expect
      .poll(async () => (await deliveries(client, endpoint)).data)
      .toMatchObject([{ status: 'delivered', attempt_count: 2, last_error: null }]);

    const { body } = await client(`GET /v1/events/${failed?.event}/deliveries`);
    const [shown] = attempted.parse(body).data;
    const [second, first, ...others] = shown.attempts;
    expect(others).toEqual([]);
    expect(second).toMatchObject({ http_status: 204, error: null, response: null });
    expect(second?.next_attempt_at).toBeNull();
    expect(first).toMatchObject({ http_status: 503, error: 'HTTP 503', response: 'no�database' });
    expect(first?.next_attempt_at).toBe(failed?.['next_attempt_at']);
    expect(Date.parse(second?.at ?? '')).toBeGreaterThan(Date.parse(first?.at ?? ''));
    for (const one of shown.attempts) expect(one.latency_ms).toBeGreaterThanOrEqual(0);
    expect(shown.last_latency_ms).toBe(second?.latency_ms);
  });

  it('has no row of its own if the first attempt succeeds', async () => {
    const { accountId, client, endpoint } = await openListener();
    await recordEvents(system.database, accountId, 30);
    await attempt(endpoint);
    await expect
      .poll(async () => (await deliveries(client, endpoint, '?status=delivered&limit=100')).data)
      .toHaveLength(30);
    const rows = await system.database`
      select 1 from delivery_attempts where endpoint_id = ${endpoint}`;
    expect(rows).toHaveLength(0);
  });

  it('shows at most 20 attempts, the successful one included', async () => {
    const { accountId, client, endpoint } = await openListener();
    await recordEvents(system.database, accountId, 1);
    const [row] = await system.database<{ eventId: string }[]>`
      update deliveries set status = 'delivered', attempts = 1, last_status = 200,
             last_attempt_at = now(), last_latency_ms = 5
       where endpoint_id = ${endpoint} returning event_id`;
    const eventId = row?.eventId ?? '';
    await system.database`
      insert into delivery_attempts (event_id, endpoint_id, at, latency_ms, http_status)
      select ${eventId}, ${endpoint}, now() - make_interval(mins => n), 5, 200
        from generate_series(1, 21) n`;
    const shown = await client(`GET /v1/events/${eventId}/deliveries`);
    expect(attempted.parse(shown.body).data[0].attempts).toHaveLength(20);
  });

  it('is purged by a worker after 30 days', async () => {
    const { endpoint } = await openListener();
    const dayMs = 24 * 60 * 60_000;
    const aged = (days: number) => firstId('event', Date.now() - days * dayMs) + '0'.repeat(16);
    for (const days of [32, 31, 29]) {
      await system.database`
        insert into delivery_attempts (event_id, endpoint_id, at)
        values (${aged(days)}, ${endpoint}, clock_timestamp())`;
    }
    expect((await purgeAttempts(system.worker, 1)).count).toBe(1);
    expect((await purgeAttempts(system.worker, 100)).count).toBe(1);
    const left = await system.database`
      select 1 from delivery_attempts where endpoint_id = ${endpoint}`;
    expect(left).toHaveLength(1);
  });
});

describe('the deliveries of an endpoint', () => {
  /** Five events: the newest is pending, then one canceled, one exhausted, and two delivered. */
  async function openMixed() {
    const listener = await openListener();
    await recordEvents(system.database, listener.accountId, 5);
    const rows = await system.database<{ id: string }[]>`
      select id from events where account_id = ${listener.accountId} order by id desc`;
    const ids = rows.map(({ id }) => id);
    const statuses = ['pending', 'canceled', 'exhausted', 'delivered', 'delivered'];
    for (const [index, status] of statuses.entries()) {
      await system.database`
        update deliveries set status = ${status} where event_id = ${ids[index] ?? ''}`;
    }
    return { ...listener, ids };
  }
  const eventsOf = ({ data }: z.infer<typeof page>) => data.map(({ event }) => event);

  it('are listed by status, newest event first, page by page', async () => {
    const { client, endpoint, ids } = await openMixed();
    expect(eventsOf(await deliveries(client, endpoint))).toEqual(ids);
    expect(eventsOf(await deliveries(client, endpoint, '?status=pending'))).toEqual([ids[0]]);
    expect(eventsOf(await deliveries(client, endpoint, '?status=failed'))).toEqual([
      ids[1],
      ids[2],
    ]);
    const delivered = await deliveries(client, endpoint, '?status=delivered&limit=1');
    expect(delivered).toMatchObject({ data: [{ event: ids[3] }], has_more: true });
    const rest = `?status=delivered&limit=1&starting_after=${ids[3]}`;
    expect(await deliveries(client, endpoint, rest)).toMatchObject({
      data: [{ event: ids[4] }],
      has_more: false,
    });
  });

  it('take only an event of the endpoint as a cursor, and are shown to its account only', async () => {
    const { client, endpoint } = await openMixed();
    const other = await openMixed();
    const foreign = `GET /v1/webhook_endpoints/${endpoint}/deliveries?starting_after=${other.ids[0]}`;
    expect(await client(foreign)).toMatchObject({
      status: 422,
      body: { code: 'cursor_not_found' },
    });
    const path = `GET /v1/webhook_endpoints/${endpoint}/deliveries`;
    expect(await other.client(path)).toMatchObject({ status: 404 });
  });

  it('are read by index, one page of each status and no more', async () => {
    const { accountId, endpoint } = await openListener();
    await recordEvents(system.database, accountId, 6_000);
    await system.database`
      update deliveries d set status = case when e.sequence % 3 = 0 then 'delivered'
             when e.sequence % 3 = 1 then 'exhausted' else 'canceled' end
        from events e where e.id = d.event_id and d.endpoint_id = ${endpoint}`;
    await system.database`analyze deliveries`;
    const reader = await openPlanReader(system.databaseUrl);
    onTestFinished(() => reader.close());
    for (const status of [undefined, 'failed', 'delivered'] as const) {
      const plans = await reader.plansOf(async () => {
        const found = await listDeliveries(
          reader.database,
          endpoint,
          { limit: 20, from: null },
          { status },
        );
        expect(found.rows).toHaveLength(20);
      });
      expect(plans).toHaveLength(1);
      for (const plan of plans) {
        expect(plan.wholeTables, plan.text).toEqual([]);
        expect(plan.rowsRead, plan.text).toBeLessThanOrEqual(100);
      }
    }
  });
});

describe('a redelivery', () => {
  const idsOf = (received: readonly { readonly headers: Readonly<Record<string, string>> }[]) =>
    received.map(({ headers }) => headers['webhook-id']);

  it('of an event arrives once more with its id, at one endpoint or at all', async () => {
    const { accountId, client, receiver, endpoint } = await openListener();
    await recordEvents(system.database, accountId, 1);
    await attempt(endpoint);
    const first = await receiver.next(() => true);
    const event = first.headers['webhook-id'] ?? '';
    // The webhook arrives before it is recorded, and a pending delivery is not sent again.
    await eventually('the delivery is recorded', 20_000, async () => {
      const { data } = await deliveries(client, endpoint, '?status=delivered');
      return data.length === 1 ? true : undefined;
    });
    const logOf = async () =>
      attempted.parse((await client(`GET /v1/events/${event}/deliveries`)).body).data[0];
    const once = await logOf();
    const idempotencyKey = crypto.randomUUID();
    const json = { webhook_endpoint: endpoint };
    const again = () => client(`POST /v1/events/${event}/redeliver`, { json, idempotencyKey });
    await again();
    const second = await receiver.next((each) => each !== first);
    expect(idsOf([second])).toEqual([event]);
    expect(second.body).toBe(first.body);
    // Neither a repeated request nor a pending delivery causes another webhook.
    expect((await again()).status).toBe(200);
    const other = await client(`POST /v1/events/${event}/redeliver`, {
      json: { webhook_endpoint: 'we_none' },
    });
    expect(other.body).toMatchObject({ code: 'parameter_invalid', param: 'webhook_endpoint' });
    expect(receiver.received).toHaveLength(2);
    // The log has both attempts, and the first keeps its result.
    const twice = await eventually('the second attempt is recorded', 20_000, async () => {
      const shown = await logOf();
      return shown.status === 'delivered' ? shown : undefined;
    });
    expect(twice.attempts).toMatchObject([{ http_status: 200 }, ...once.attempts]);
    expect(twice.attempts).toHaveLength(2);
  });

  it('of all failures since a time sends each event once, and no others', async () => {
    const { accountId, client, receiver, endpoint } = await openListener();
    await recordEvents(system.database, accountId, 30);
    await system.database`
      update deliveries set status = case when event_id < (
               select event_id from deliveries where endpoint_id = ${endpoint}
                order by event_id offset 20 limit 1) then 'exhausted' else 'delivered' end,
             attempts = 12
       where endpoint_id = ${endpoint}`;
    const missing = (await deliveries(client, endpoint, '?status=failed&limit=100')).data;
    expect(missing).toHaveLength(20);
    const json = { since: new Date(Date.now() - 3_600_000).toISOString() };
    const path = `POST /v1/webhook_endpoints/${endpoint}/redeliver`;
    const [one, two] = await Promise.all([client(path, { json }), client(path, { json })]);
    expect([one.body, two.body]).toMatchObject([{ has_more: false }, { has_more: false }]);
    await eventually('all have arrived', 20_000, () =>
      receiver.received.length >= 20 ? true : undefined,
    );
    await eventually('nothing is pending', 20_000, async () => {
      const { data } = await deliveries(client, endpoint, '?status=pending');
      return data.length === 0 ? true : undefined;
    });
    const arrived = idsOf(receiver.received);
    expect(arrived).toHaveLength(20);
    expect(new Set(arrived)).toEqual(new Set(missing.map(({ event }) => event)));
    const shown = await client(`GET /v1/events/${missing[0]?.event ?? ''}/deliveries`);
    expect(attempted.parse(shown.body).data[0].attempt_count).toBe(1);
  });

  it('of failures leaves out those that another redelivery has delivered meanwhile', async () => {
    const { accountId, client, endpoint } = await openListener();
    await recordEvents(system.database, accountId, 3);
    await system.database`
      update deliveries set status = 'exhausted', attempts = 12 where endpoint_id = ${endpoint}`;
    const json = { since: new Date(Date.now() - 3_600_000).toISOString() };
    const answers: Promise<ApiAnswer>[] = [];
    await system.database.begin(async (sql) => {
      await sql`update deliveries set status = 'delivered' where endpoint_id = ${endpoint}`;
      answers.push(client(`POST /v1/webhook_endpoints/${endpoint}/redeliver`, { json }));
      await untilLockWaits(system.database, 'the redelivery waits', 20_000);
    });
    expect(await Promise.all(answers)).toMatchObject([{ body: { pending: 0, has_more: false } }]);
    expect((await deliveries(client, endpoint, '?status=delivered')).data).toHaveLength(3);
  });

  it('of what has failed since an outage began includes the event that it began with', async () => {
    const { accountId, client, receiver, endpoint } = await openListener();
    const path = `/v1/webhook_endpoints/${endpoint}`;
    receiver.answerWith(410);
    await recordEvents(system.database, accountId, 1);
    await attempt(endpoint);
    // The outage begins when its first failure is recorded, which is after the event.
    const since = await eventually('the endpoint is disabled', 20_000, async () => {
      const { body } = await client(`GET ${path}`);
      return body['status'] === 'disabled' ? z.string().parse(body['failing_since']) : undefined;
    });
    receiver.answerWith(200);
    await client(`POST ${path}`, { json: { status: 'enabled' } });
    const [failed] = receiver.received;
    const later = new Date(Date.parse(since) + 60_000).toISOString();
    const none = await client(`POST ${path}/redeliver`, { json: { since: later } });
    expect(none.body).toMatchObject({ pending: 0, has_more: false });
    const redelivery = await client(`POST ${path}/redeliver`, { json: { since } });
    expect(redelivery.body).toMatchObject({ has_more: false });
    const again = await receiver.next((each) => each !== failed);
    expect(again.body).toBe(failed?.body);
  });

  it('of an event is refused to a disabled or deleted endpoint, and does not wake it', async () => {
    const { accountId, client, endpoint } = await openListener();
    await recordEvents(system.database, accountId, 1);
    const [one = ''] = (await deliveries(client, endpoint)).data.map(({ event }) => event);
    const path = `/v1/webhook_endpoints/${endpoint}`;
    await client(`POST ${path}`, { json: { status: 'disabled' } });
    await system.database`
      update webhook_endpoints set failures = ${failuresToPause + 5} where id = ${endpoint}`;
    const again = (json: object) => client(`POST /v1/events/${one}/redeliver`, { json });
    for (const end of ['disabled', 'deleted']) {
      expect((await again({})).body, end).toMatchObject({ data: [{ status: 'canceled' }] });
      const refused = await again({ webhook_endpoint: endpoint });
      expect(refused, end).toMatchObject({
        status: 400,
        body: {
          ...{ code: 'parameter_invalid', param: 'webhook_endpoint' },
          expected: 'an enabled endpoint that the event was for',
        },
      });
      await client(`DELETE ${path}`);
    }
    const [row] = await system.database`
      select failures from webhook_endpoints where id = ${endpoint}`;
    expect(row).toEqual({ failures: failuresToPause + 5 });
    const workflow = system.temporal.workflow.getHandle(`webhook/${endpoint}`);
    await expect(workflow.describe()).rejects.toThrow('not found');
  });

  it('of an event to a disabled endpoint does not use up the key', async () => {
    const { accountId, client, endpoint } = await openListener();
    await recordEvents(system.database, accountId, 1);
    const [one = ''] = (await deliveries(client, endpoint)).data.map(({ event }) => event);
    const path = `POST /v1/webhook_endpoints/${endpoint}`;
    const request = { json: { webhook_endpoint: endpoint }, idempotencyKey: `again-${endpoint}` };
    const redeliver = () => client(`POST /v1/events/${one}/redeliver`, request);
    await client(path, { json: { status: 'disabled' } });
    expect((await redeliver()).status).toBe(400);
    await client(path, { json: { status: 'enabled' } });
    expect((await redeliver()).status).toBe(200);
  });

  it('is refused to a disabled endpoint, and for an invalid time', async () => {
    const { client, endpoint } = await openListener();
    const path = `POST /v1/webhook_endpoints/${endpoint}/redeliver`;
    const malformed = await client(path, { json: { since: 'yesterday' } });
    expect(malformed.body).toMatchObject({ code: 'parameter_invalid', param: 'since' });
    await client(`POST /v1/webhook_endpoints/${endpoint}`, { json: { status: 'disabled' } });
    const refused = await client(path, { json: { since: '2026-11-21T12:00:00Z' } });
    expect(refused.body).toMatchObject({
      ...{ status: 409, code: 'webhook_endpoint_disabled' },
      detail: expect.stringContaining('Enable the endpoint first.'),
    });
  });
});
