import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { wakeEndpoint } from '../../src/temporal/workflowCalls.js';
import { readDocument } from '../assertions/document.js';
import { type ReceivedWebhook, startReceiver } from '../fakes/receiver.js';
import { createClient, textOf } from '../fixtures/client.js';
import { startDeliveryWorker } from '../fixtures/deliveryWorker.js';
import { runDeliveries, skip } from '../fixtures/skippedDeliveries.js';
import { makeDue, recordEvents } from '../fixtures/webhookEvents.js';
import { createTestAccount, withoutTriggers } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem({ decisionLimitMs: 5_000 });
  // The tests make each attempt themselves, until one needs the endpoint's workflow.
  await system.stopWorker();
});
afterAll(() => system.stop());

/** Starts the deliverer of a separate worker. */
function startDeliverer() {
  const { worker: database, temporal } = system;
  const worker = startDeliveryWorker({ database, temporal });
  return {
    deliver: (payoutId: string) => worker.deliver(payoutId),
    deliverDue: async (endpointId: string) => {
      await makeDue(system.database, endpointId);
      return worker.deliverDue(endpointId);
    },
  };
}

async function openAccount() {
  const { account, apiKey } = await createTestAccount(system.database);
  return { accountId: account.id, client: createClient(system.apiUrl, apiKey) };
}

type Caller = Awaited<ReturnType<typeof openAccount>>;

async function addEndpoint(
  { client }: Caller,
  batching = true,
  when?: (answer: () => void) => void,
) {
  const receiver = await startReceiver(when);
  onTestFinished(() => receiver.close());
  const json = { url: receiver.url, events: ['*'], batching };
  const added = await client('POST /v1/webhook_endpoints', { json });
  expect(added).toMatchObject({ status: 201, body: { batching } });
  return { id: textOf(added, 'id'), secret: textOf(added, 'secret'), receiver };
}

/** An account with one endpoint that accepts batches of events. */
async function openListener(when?: (answer: () => void) => void) {
  const caller = await openAccount();
  return { ...caller, ...(await addEndpoint(caller, true, when)) };
}

const message = z.object({ id: z.string(), type: z.string(), sequence: z.number() });
const batch = z.object({
  id: z.string().regex(/^evb_[0-9a-f]{32}$/),
  type: z.literal('event.batch'),
  data: z.array(message.loose()),
});

const batchIn = ({ body }: ReceivedWebhook) => batch.parse(JSON.parse(body));

const sequencesIn = (received: readonly ReceivedWebhook[]) =>
  received.flatMap((one) => batchIn(one).data.map(({ sequence }) => sequence));

const upTo = (count: number) => Array.from({ length: count }, (_, index) => index + 1);

const ascending = (numbers: readonly number[]) => numbers.toSorted((a, b) => a - b);

/** The state of an endpoint's deliveries, in the order of the events. */
function deliveriesOf(endpointId: string) {
  return system.database<
    { status: string; attempts: number; lastError: string | null; nextAttemptAt: Date }[]
  >`
    select d.status, d.attempts, d.last_error, d.next_attempt_at
      from deliveries d join events e on e.id = d.event_id
     where d.endpoint_id = ${endpointId} order by e.sequence`;
}

async function statusesOf(endpointId: string): Promise<readonly string[]> {
  return (await deliveriesOf(endpointId)).map(({ status }) => status);
}

/** Maximum size of a request, to check that the 200 bytes reserved for the envelope suffice. */
const maximumBytes = 256 * 1024;

describe('an endpoint that takes batches', () => {
  it('gets 250 events in a few requests, each once, with the same bytes as without batching', async () => {
    const caller = await openAccount();
    const batched = await addEndpoint(caller);
    const plain = await addEndpoint(caller, false);
    const payout = await recordEvents(system.database, caller.accountId, 250);
    await startDeliverer().deliver(payout);
    expect(await statusesOf(batched.id)).toEqual(Array(250).fill('delivered'));
    expect(await statusesOf(plain.id)).toEqual(Array(250).fill('delivered'));

    const { received } = batched.receiver;
    expect(received.length).toBeGreaterThanOrEqual(3);
    expect(received.length).toBeLessThanOrEqual(5);
    expect(ascending(sequencesIn(received))).toEqual(upTo(250));
    const single = new Map(
      plain.receiver.received.map(({ headers, body }) => [headers['webhook-id'], body]),
    );
    expect(single.size).toBe(250);
    const document = await readDocument(system.apiUrl, '2026-06-01');
    const pointer = '/webhooks/event.batch/post/requestBody/content/application~1json/schema';
    for (const one of received) {
      const { id, data } = batchIn(one);
      expect(one.headers['webhook-id']).toBe(id);
      expect(new Webhook(batched.secret).verify(one.body, one.headers)).toMatchObject({ id });
      expect(data.length).toBeLessThanOrEqual(100);
      expect(Buffer.byteLength(one.body)).toBeLessThanOrEqual(maximumBytes);
      const events = data.map((event) => single.get(event.id)).join(',');
      expect(one.body.endsWith(`,"data":[${events}]}`)).toBe(true);
      const sequences = data.map(({ sequence }) => sequence);
      expect(sequences).toEqual(ascending(sequences));
      expect(document.faultOf(pointer, JSON.parse(one.body))).toBeUndefined();
    }
  });

  it('gets fewer large events per request: none is longer than 256 KiB', async () => {
    const { accountId, id, receiver } = await openListener();
    const payout = await recordEvents(system.database, accountId, 100);
    const metadata = Object.fromEntries(upTo(14).map((name) => [name, 'ä'.repeat(250)]));
    await withoutTriggers(
      system.database,
      (sql) => sql`update payouts set metadata = ${sql.json(metadata)} where id = ${payout}`,
    );
    await startDeliverer().deliver(payout);
    expect(await statusesOf(id)).toEqual(Array(100).fill('delivered'));
    const sizes = receiver.received.map(({ body }) => Buffer.byteLength(body));
    expect(Math.max(...sizes)).toBeLessThanOrEqual(maximumBytes);
    // Requests are as full as possible, because the large first event would not fit in twice.
    expect(Math.max(...sizes)).toBeGreaterThan(maximumBytes - 10_000);
    expect(ascending(sequencesIn(receiver.received))).toEqual(upTo(100));
  });

  it('gets a single event in the same format', async () => {
    const { accountId, receiver } = await openListener();
    await startDeliverer().deliver(await recordEvents(system.database, accountId, 1));
    expect(receiver.received.map(batchIn)).toMatchObject([{ data: [{ sequence: 1 }] }]);
  });

  it('gets every event, even if it refuses every second request', async () => {
    let requests = 0;
    const { accountId, id, receiver } = await openListener((answer) => {
      requests += 1;
      receiver.answerWith(requests % 2 === 1 ? 503 : 200);
      answer();
    });
    const worker = startDeliverer();
    await worker.deliver(await recordEvents(system.database, accountId, 450));
    const first = await statusesOf(id);
    expect(first.filter((status) => status === 'pending').length).toBeGreaterThanOrEqual(100);
    // Each run attempts what is left: at least half of its requests are refused, but not all.
    for (let run = 0; run < 10 && (await statusesOf(id)).includes('pending'); run += 1) {
      await worker.deliverDue(id);
    }
    expect(await statusesOf(id)).toEqual(Array(450).fill('delivered'));
    const taken = receiver.received.filter((_, index) => index % 2 === 1);
    expect(ascending(sequencesIn(taken))).toEqual(upTo(450));
  });

  it('gets the same batch again after its Retry-After; each event records the attempt', async () => {
    const { accountId, id, receiver } = await openListener();
    const worker = startDeliverer();
    receiver.answerWith(503, 'busy', { 'retry-after': '3600' });
    await worker.deliver(await recordEvents(system.database, accountId, 40));
    const rows = await deliveriesOf(id);
    expect(rows).toHaveLength(40);
    // They share one time, so that they are due together.
    expect(new Set(rows.map((row) => row.nextAttemptAt.getTime())).size).toBe(1);
    for (const row of rows) {
      expect(row).toMatchObject({ status: 'pending', attempts: 1, lastError: 'HTTP 503' });
      expect(row.nextAttemptAt.getTime() - Date.now()).toBeGreaterThan(3_590_000);
    }
    const attempts = await system.database`
      select 1 from delivery_attempts
       where endpoint_id = ${id} and http_status = 503 and answer = 'busy'`;
    expect(attempts).toHaveLength(40);

    receiver.answerWith(200);
    await worker.deliverDue(id);
    expect(await statusesOf(id)).toEqual(Array(40).fill('delivered'));
    const [refused, repeated, ...others] = receiver.received;
    expect(others).toEqual([]);
    expect(repeated?.headers['webhook-id']).toBe(refused?.headers['webhook-id']);
    expect(repeated?.body).toBe(refused?.body);
  });

  it('that always refuses one event gets all the others, in ever smaller requests', async () => {
    const { accountId, id, receiver } = await openListener();
    await recordEvents(system.database, accountId, 100);
    const [poison] = await system.database<{ id: string }[]>`
      select id from events where account_id = ${accountId} and sequence = 50`;
    receiver.refuse((body) => body.includes(poison?.id ?? ''));
    await skip(system.database, id, 20_000);
    await runDeliveries(system, id);
    const statuses = await statusesOf(id);
    expect(statuses.filter((status) => status === 'delivered')).toHaveLength(99);
    expect(statuses.filter((status) => status === 'exhausted')).toHaveLength(1);
  });

  it('that answers 410 is disabled, and none of the batch is tried again', async () => {
    const { accountId, client, id, receiver } = await openListener();
    receiver.answerWith(410);
    await startDeliverer().deliver(await recordEvents(system.database, accountId, 40));
    expect(receiver.received).toHaveLength(1);
    expect(await statusesOf(id)).toEqual(Array(40).fill('exhausted'));
    expect((await client(`GET /v1/webhook_endpoints/${id}`)).body).toMatchObject({
      ...{ status: 'disabled', status_reason: 'The receiver answered 410 Gone.' },
    });
  });

  it('is not abandoned by a run after a few refusals, however many events they held', async () => {
    let requests = 0;
    const { accountId, id, receiver } = await openListener((answer) => {
      requests += 1;
      // The first claim takes 500 events, and everything that it sends is refused.
      receiver.answerWith(requests <= 5 ? 503 : 200);
      answer();
    });
    await startDeliverer().deliver(await recordEvents(system.database, accountId, 600));
    expect(requests).toBe(6);
    const statuses = await statusesOf(id);
    expect(statuses.slice(0, 500)).toEqual(Array(500).fill('pending'));
    expect(statuses.slice(500)).toEqual(Array(100).fill('delivered'));
  });

  it('gets the other events if one cannot be built, and only that one fails', async () => {
    const { accountId, id, receiver } = await openListener();
    const payout = await recordEvents(system.database, accountId, 20);
    await withoutTriggers(
      system.database,
      (sql) => sql`
        update events set facts = 'null' where account_id = ${accountId} and sequence = 7`,
    );
    await startDeliverer().deliver(payout);
    const rows = await deliveriesOf(id);
    expect(rows.filter(({ status }) => status === 'delivered')).toHaveLength(19);
    expect(rows[6]).toMatchObject({
      status: 'pending',
      lastError: 'internal error: nothing was sent',
    });
    expect(receiver.received).toHaveLength(1);
  });
});

describe('an update of batching', () => {
  it('applies to pending events, in both directions, and is kept by other updates', async () => {
    const { accountId, client, id, receiver } = await openListener();
    const worker = startDeliverer();
    const path = `POST /v1/webhook_endpoints/${id}`;
    await recordEvents(system.database, accountId, 30);
    const plain = await client(path, { form: { batching: 'false' } });
    expect(plain.body).toMatchObject({ batching: false });
    await worker.deliverDue(id);
    expect(receiver.received).toHaveLength(30);
    for (const { headers } of receiver.received) expect(headers['webhook-id']).toMatch(/^evt_/);

    await recordEvents(system.database, accountId, 30);
    await client(path, { json: { batching: true } });
    const described = await client(path, { json: { description: 'To the ledger' } });
    expect(described.body).toMatchObject({ batching: true });
    await worker.deliverDue(id);
    expect(receiver.received).toHaveLength(31);
    expect(ascending(sequencesIn(receiver.received.slice(30)))).toEqual(upTo(60).slice(30));
    expect(await statusesOf(id)).toEqual(Array(60).fill('delivered'));
  });
});

it('the workflow of an endpoint claims as many events as a request can hold', async () => {
  await system.startWorker();
  const { accountId, id, receiver } = await openListener();
  await recordEvents(system.database, accountId, 250);
  await makeDue(system.database, id);
  await wakeEndpoint(system.temporal, id);
  await expect
    .poll(() => statusesOf(id), { timeout: 20_000 })
    .toEqual(Array(250).fill('delivered'));
  expect(receiver.received.length).toBeLessThanOrEqual(6);
  expect(ascending(sequencesIn(receiver.received))).toEqual(upTo(250));
});
