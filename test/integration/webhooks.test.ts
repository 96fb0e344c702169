import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { webhookExample } from '../../src/contract/webhookExamples.js';
import type { WebhookType } from '../../src/domain/event.js';
import { type ReceivedWebhook, type Receiver, startReceiver } from '../fakes/receiver.js';
import { type ApiClient, createClient, textOf, untilStatus } from '../fixtures/client.js';
import { createTestAccount } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

type Caller = {
  readonly client: ApiClient;
  readonly beneficiary: string;
  readonly pay: () => Promise<string>;
};

/** A separate account for a test, so that its endpoints get no events of other tests. */
async function openCaller(apiVersion = '2026-06-01'): Promise<Caller> {
  const { apiKey } = await createTestAccount(system.database, { apiVersion });
  const client = createClient(system.apiUrl, apiKey);
  const added = await client('POST /v1/beneficiaries', {
    form: {
      type: 'individual',
      name: 'Ada Lovelace',
      country: 'DE',
      currency: 'EUR',
      iban: 'DE89370400440532013000',
    },
  });
  const beneficiary = textOf(added, 'id');
  const form = { source_currency: 'USD', amount: '10000', beneficiary };
  const pay = async () => textOf(await client('POST /v1/payouts', { form }), 'id');
  return { client, beneficiary, pay };
}

async function openReceiver(): Promise<Receiver> {
  const receiver = await startReceiver();
  onTestFinished(() => receiver.close());
  return receiver;
}

type Endpoint = { readonly id: string; readonly secret: string };

async function addEndpoint(
  { client }: Caller,
  receiver: Receiver,
  ...events: readonly string[]
): Promise<Endpoint> {
  const added = await client('POST /v1/webhook_endpoints', { json: { url: receiver.url, events } });
  expect(added.status).toBe(201);
  return { id: textOf(added, 'id'), secret: textOf(added, 'secret') };
}

const about = (payout: string) => (webhook: ReceivedWebhook) => webhook.body.includes(payout);

/** Waits until the receiver has this many webhooks about the payout, and returns them. */
async function untilReceived(receiver: Receiver, payout: string, count: number) {
  const matching = () => receiver.received.filter(about(payout));
  await receiver.next(() => matching().length >= count);
  return matching();
}

/** The endpoint's deliveries, in the order of the events. */
function deliveriesTo({ id }: Endpoint) {
  return system.database<{ type: string; payout: string; status: string; attempts: number }[]>`
    select e.type, e.subject_id as payout, d.status, d.attempts
      from deliveries d join events e on e.id = d.event_id
     where d.endpoint_id = ${id} order by e.sequence`;
}

/** Waits until the endpoint's deliveries match; a webhook arrives before its row is updated. */
async function untilDeliveries(endpoint: Endpoint, expected: readonly object[]): Promise<void> {
  await expect
    .poll(async () => [...(await deliveriesTo(endpoint))], { timeout: 15_000 })
    .toMatchObject(expected);
}

it.each([
  'events=A&events=B',
  'events[]=A&events[]=B',
  'events[0]=A&events[1]=B',
  'events=A&events[]=B',
])('an endpoint is added by a form with %s', async (events) => {
  const { client } = await openCaller();
  const body = `url=http://127.0.0.1:1/&${events}`
    .replace('A', 'payout.sent')
    .replace('B', 'payout.failed');
  const raw = { contentType: 'application/x-www-form-urlencoded', body };
  const added = await client('POST /v1/webhook_endpoints', { raw });
  expect(added).toMatchObject({
    status: 201,
    body: { events: ['payout.sent', 'payout.failed'] },
  });
});

describe('an endpoint that answers', () => {
  it('500 gets the same event again, byte for byte, until it accepts it', async () => {
    const caller = await openCaller();
    const receiver = await openReceiver();
    const endpoint = await addEndpoint(caller, receiver, 'payout.settled');
    receiver.answerWith(500);
    const payout = await caller.pay();
    await untilReceived(receiver, payout, 1);
    receiver.answerWith(204);

    const [first, second, ...others] = await untilReceived(receiver, payout, 2);
    expect(others).toEqual([]);
    expect(second?.body).toBe(first?.body);
    expect(second?.headers['webhook-id']).toBe(first?.headers['webhook-id']);
    const [firstAt, secondAt] = [first, second].map((webhook) =>
      Number(webhook?.headers['webhook-timestamp']),
    );
    // Each attempt has a new timestamp and signature; otherwise a receiver would take it for a replay.
    expect(secondAt).toBeGreaterThan(firstAt ?? Number.NaN);
    const verifier = new Webhook(endpoint.secret);
    for (const webhook of [first, second]) {
      const verified = verifier.verify(webhook?.body ?? '', webhook?.headers ?? {});
      expect(verified).toMatchObject({ type: 'payout.settled', data: { id: payout } });
    }
    await untilDeliveries(endpoint, [{ payout, status: 'delivered', attempts: 2 }]);
    // Nothing is left to deliver, so the endpoint's workflow ends.
    await system.temporal.workflow.getHandle(`webhook/${endpoint.id}`).result();
    expect(receiver.received).toHaveLength(2);
  });

  it('410 is disabled, and its pending deliveries are canceled', async () => {
    const caller = await openCaller();
    const receiver = await openReceiver();
    const endpoint = await addEndpoint(caller, receiver, 'payout.settled');
    receiver.answerWith(500);
    const pending = await caller.pay();
    await untilReceived(receiver, pending, 1);
    await untilDeliveries(endpoint, [{ payout: pending, status: 'pending', attempts: 1 }]);

    receiver.answerWith(410);
    const refused = await caller.pay();
    await untilReceived(receiver, refused, 1);
    await expect
      .poll(async () => (await caller.client(`GET /v1/webhook_endpoints/${endpoint.id}`)).body)
      .toMatchObject({ status: 'disabled', status_reason: expect.stringContaining('410') });
    await untilDeliveries(endpoint, [
      { payout: pending, status: 'canceled' },
      { payout: refused, status: 'exhausted' },
    ]);

    const later = await caller.pay();
    await untilStatus(caller.client, later, 'settled');
    expect(await deliveriesTo(endpoint)).toHaveLength(2);
  });
});

describe('an endpoint receives', () => {
  it('only the event types that it subscribes to, and all of them with *', async () => {
    const caller = await openCaller();
    const [sent, settled, all] = [
      await openReceiver(),
      await openReceiver(),
      await openReceiver(),
    ] as const;
    const endpoints = [
      await addEndpoint(caller, sent, 'payout.sent', 'payout.failed'),
      await addEndpoint(caller, settled, 'payout.settled'),
      await addEndpoint(caller, all, '*'),
    ];
    const payout = await caller.pay();
    await Promise.all([
      untilReceived(sent, payout, 1),
      untilReceived(settled, payout, 1),
      untilReceived(all, payout, 2),
    ]);
    // The rows were written with the events: an endpoint without one never gets the event.
    const types = await Promise.all(
      endpoints.map(async (endpoint) => (await deliveriesTo(endpoint)).map(({ type }) => type)),
    );
    expect(types).toEqual([['payout.sent'], ['payout.settled'], ['payout.sent', 'payout.settled']]);
    const typesAt = ({ received }: Receiver) =>
      received.map(({ body }) => String(JSON.parse(body).type)).sort();
    expect([sent, settled, all].map(typesAt)).toEqual(types);
  });

  it('nothing once it is deleted, and its pending deliveries are canceled', async () => {
    const caller = await openCaller();
    const [kept, deleted] = [await openReceiver(), await openReceiver()] as const;
    await addEndpoint(caller, kept, 'payout.settled');
    const endpoint = await addEndpoint(caller, deleted, 'payout.settled');
    deleted.answerWith(500);
    const pending = await caller.pay();
    await untilReceived(deleted, pending, 1);
    await untilDeliveries(endpoint, [{ payout: pending, status: 'pending', attempts: 1 }]);

    const gone = await caller.client(`DELETE /v1/webhook_endpoints/${endpoint.id}`);
    expect(gone.body).toMatchObject({ deleted: true });
    const payout = await caller.pay();
    await untilReceived(kept, payout, 1);
    expect([...(await deliveriesTo(endpoint))]).toMatchObject([
      { payout: pending, status: 'canceled', attempts: 1 },
    ]);
    expect(deleted.received.filter(about(payout))).toEqual([]);
    const read = await caller.client(`GET /v1/webhook_endpoints/${endpoint.id}`);
    expect(read.status).toBe(404);
  });

  it('the rate in its own API version: a number or an exact string', async () => {
    const caller = await openCaller('2026-06-01');
    const [older, newer] = [await openReceiver(), await openReceiver()] as const;
    await addEndpoint(caller, older, 'payout.settled');
    const opted = await caller.client('POST /v1/account', { form: { api_version: '2026-11-15' } });
    expect(opted.status).toBe(200);
    await addEndpoint(caller, newer, 'payout.settled');
    const payout = await caller.pay();
    const [[inNumbers], [inStrings]] = await Promise.all([
      untilReceived(older, payout, 1),
      untilReceived(newer, payout, 1),
    ]);
    const rate = textOf(await caller.client(`GET /v1/payouts/${payout}`), 'rate');
    expect(JSON.parse(inStrings?.body ?? '')).toMatchObject({
      api_version: '2026-11-15',
      data: { id: payout, rate, fee: '1.00', received: expect.any(String) },
    });
    expect(JSON.parse(inNumbers?.body ?? '')).toMatchObject({
      api_version: '2026-06-01',
      data: { id: payout, rate: Number(rate), fee: 1, received: expect.any(String) },
    });
    expect(inNumbers?.headers['webhook-id']).toBe(inStrings?.headers['webhook-id']);
  });
});

describe('the example of a webhook', () => {
  const version = '2026-11-15';

  /** The form of a message, with values that vary replaced by their types: times, IDs, amounts. */
  const formOf = (value: unknown, name = ''): unknown => {
    if (Array.isArray(value)) return value.map((each) => formOf(each));
    if (value === null || constants.has(name)) return value;
    if (typeof value !== 'object') return typeof value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, formOf(each, key)]));
  };
  const constants = new Set([
    ...['object', 'type', 'api_version', 'status', 'status_reason', 'status_reason_text', 'reason'],
    ...[
      'source_currency',
      'destination_currency',
      'fixed_side',
      'mode',
      'outcome',
      'total',
      'final',
    ],
  ]);

  it('matches what receivers get, for every type', { timeout: 60_000 }, async () => {
    const caller = await openCaller(version);
    const [all, closed, batched] = [
      await openReceiver(),
      await openReceiver(),
      await openReceiver(),
    ] as const;
    await addEndpoint(caller, all, '*');
    const { client, beneficiary } = caller;
    const item = { source_currency: 'USD', amount: 125_000, beneficiary };
    const pay = async (reference: string) => {
      const priced = { source_currency: 'USD', destination_currency: 'EUR', amount: '125000' };
      const quote = textOf(await client('POST /v1/quotes', { form: priced }), 'id');
      const form = { quote, beneficiary, reference, 'metadata[order]': '7' };
      return textOf(await client('POST /v1/payouts', { form }), 'id');
    };
    const [settled, failed, returned, canceled] = await Promise.all([
      pay('Invoice 7'),
      pay('simulate: late rejection AC04'),
      pay('simulate: return AC04 after 1s'),
      pay('simulate: timeout then nothing'),
    ]);
    await untilStatus(client, canceled, 'processing');
    expect((await client(`POST /v1/payouts/${canceled}/cancel`)).status).toBe(200);
    await untilStatus(client, returned, 'returned');

    const json = { url: batched.url, events: ['payout.settled'], batching: true };
    await client('POST /v1/webhook_endpoints', { json });
    closed.answerWith(410);
    const gone = await addEndpoint(caller, closed, 'payout.settled');
    const payouts = [item, item].map((one, index) => ({ ...one, reference: `Salary ${index}` }));
    const batch = textOf(await client('POST /v1/batches', { json: { payouts } }), 'id');
    const tested = await addEndpoint(caller, closed, 'payout.settled');
    await client(`POST /v1/webhook_endpoints/${tested.id}/test`);

    const sent: readonly (readonly [WebhookType, Receiver, string])[] = [
      ['payout.sent', all, settled],
      ['payout.settled', all, settled],
      ['payout.failed', all, failed],
      ['payout.returned', all, returned],
      ['payout.canceled', all, canceled],
      ['batch.completed', all, batch],
      ['webhook_endpoint.disabled', all, gone.id],
      ['event.batch', batched, ''],
      ['webhook_endpoint.test', closed, tested.id],
    ];
    for (const [type, receiver, subject] of sent) {
      const { body } = await receiver.next(
        (one) => one.body.includes(`"type":"${type}"`) && one.body.includes(subject),
      );
      const { data, ...message } = JSON.parse(body);
      const example = webhookExample(type, version);
      // Other tests cover the number of events per request and the reason for disabling an endpoint.
      const [received, documented] =
        type === 'event.batch'
          ? [
              { ...message, data: [] },
              { ...example, data: [] },
            ]
          : [{ ...message, data }, example];
      if (type === 'webhook_endpoint.disabled') {
        expect(data.status_reason).toBe('The receiver answered 410 Gone.');
        received.data.status_reason = 'No delivery succeeded for 5 days.';
      }
      expect([type, formOf(received)]).toEqual([type, formOf(documented)]);
    }
  });
});

it('an account that adds 40 endpoints at the same time gets 16', async () => {
  const { client } = await openCaller();
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, index) =>
      client('POST /v1/webhook_endpoints', {
        json: { url: `http://127.0.0.1:1/${index}`, events: ['*'] },
      }),
    ),
  );
  const statuses = answers.map(({ status }) => status).toSorted((a, b) => a - b);
  expect(statuses).toEqual([...Array(16).fill(201), ...Array(24).fill(422)]);
  const { body } = await client('GET /v1/webhook_endpoints?limit=100');
  expect(body['data']).toHaveLength(16);
});

describe('the feed of events', () => {
  const page = z.object({
    data: z.array(
      z.object({ sequence: z.number(), type: z.string(), data: z.object({ id: z.string() }) }),
    ),
    has_more: z.boolean(),
  });

  it('has no gaps over 20 concurrent payouts, and each payout’s events in order', async () => {
    const caller = await openCaller();
    const payouts = await Promise.all(Array.from({ length: 20 }, () => caller.pay()));
    await Promise.all(payouts.map((payout) => untilStatus(caller.client, payout, 'settled')));

    const events: z.infer<typeof page>['data'] = [];
    let hasMore = true;
    // Forty events are six pages of seven; the limit makes an endless feed fail the test.
    for (let pages = 0; hasMore && pages < 10; pages += 1) {
      const after = events.at(-1)?.sequence ?? 0;
      const answer = await caller.client(`GET /v1/events?limit=7&after=${after}`);
      const { data, has_more } = page.parse(answer.body);
      events.push(...data);
      hasMore = has_more;
    }
    expect(events.map(({ sequence }) => sequence)).toEqual(
      Array.from({ length: 40 }, (_, index) => index + 1),
    );
    for (const payout of payouts) {
      const own = events.filter(({ data }) => data.id === payout).map(({ type }) => type);
      expect(own).toEqual(['payout.sent', 'payout.settled']);
    }
  });
});
