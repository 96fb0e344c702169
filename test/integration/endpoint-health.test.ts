import { Client, Connection } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { transaction } from '../../src/db/client.js';
import { claimDueDeliveries } from '../../src/db/deliveries.js';
import { failuresToPause, recordHealth } from '../../src/db/endpointHealth.js';
import { newId } from '../../src/db/id.js';
import { redeliverFailed } from '../../src/db/redelivery.js';
import {
  cancelAll,
  findWebhookEndpoint,
  insertWebhookEndpoint,
  updateWebhookEndpoint,
} from '../../src/db/webhookEndpoints.js';
import { createWebhookSecret } from '../../src/webhooks/signature.js';
import { eventually } from '../assertions/eventually.js';
import { startReceiver } from '../fakes/receiver.js';
import { startTarpit } from '../fakes/tarpit.js';
import { startUnsteadySink } from '../fakes/unsteadySink.js';
import { rememberSecret } from '../fakes/webhookSecrets.js';
import { startDeliveryWorker } from '../fixtures/deliveryWorker.js';
import { keyring } from '../fixtures/keyring.js';
import { runDeliveries, skip as skipTime } from '../fixtures/skippedDeliveries.js';
import { recordEvents } from '../fixtures/webhookEvents.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  untilLockWaits,
} from '../servers/database.js';
import { temporalAddress } from '../servers/temporalAddress.js';

let test: TestDatabase;
let temporal: Client;

beforeAll(async () => {
  test = await createTestDatabase();
  // No worker polls this server's queues: due deliveries are attempted when a test does so.
  temporal = new Client({ connection: await Connection.connect({ address: temporalAddress() }) });
});
afterAll(async () => {
  await temporal.connection.close();
  await test.drop();
});

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;

const openWorker = () => startDeliveryWorker({ database: test.database, temporal });

async function openSink(moodOf: Parameters<typeof startUnsteadySink>[0]) {
  const sink = await startUnsteadySink(moodOf);
  onTestFinished(() => sink.close());
  return sink;
}

async function addEndpoint(accountId: string, url: string, events = ['*']): Promise<string> {
  const id = newId('webhookEndpoint');
  const made = { id, accountId, url, events, secret: createWebhookSecret() };
  await insertWebhookEndpoint(test.database, keyring, { ...made, apiVersion: '2026-06-01' });
  rememberSecret(made);
  return id;
}

/** An account whose endpoint subscribes to payout events only. */
async function openListener(url: string) {
  const { account } = await createTestAccount(test.database);
  const endpointId = await addEndpoint(account.id, url, ['payout.sent']);
  const endpoint = () => findWebhookEndpoint(test.database, account.id, endpointId);
  return { accountId: account.id, endpointId, endpoint };
}

const skip = (endpointId: string, ms: number) => skipTime(test.database, endpointId, ms);
const run = (endpointId: string, limitMs?: number) =>
  runDeliveries({ database: test.database, temporal }, endpointId, limitMs);

async function statuses(endpointId: string): Promise<readonly string[]> {
  const rows = await test.database<{ status: string }[]>`
    select distinct status from deliveries where endpoint_id = ${endpointId}`;
  return rows.map(({ status }) => status);
}

const numbers = (count: number) => Array.from({ length: count }, (_, index) => index + 1);
const inOrder = (taken: readonly number[]) => [...new Set(taken)].toSorted((a, b) => a - b);

describe('an endpoint', { timeout: 120_000 }, () => {
  it('that is down for 20 minutes gets one request at a time, and misses nothing', async () => {
    const sink = await openSink(() => 500);
    const { accountId, endpointId, endpoint } = await openListener(sink.url);
    await recordEvents(test.database, accountId, 1_000);
    await run(endpointId, 20 * minuteMs);
    // 32 at once, then one at 30 s, 60 s and so on up to two minutes, and less often later.
    expect(sink.requests()).toBeGreaterThan(failuresToPause);
    expect(sink.requests()).toBeLessThan(failuresToPause + 64);
    expect(await endpoint()).toMatchObject({ status: 'enabled', failingSince: expect.any(Date) });

    sink.behave(() => 200);
    const before = sink.requests();
    await run(endpointId);
    expect(inOrder(sink.taken)).toEqual(numbers(1_000));
    expect(sink.taken).toHaveLength(1_000);
    expect(sink.requests() - before).toBe(1_000);
    expect(await endpoint()).toMatchObject({ failingSince: null });
    expect(await statuses(endpointId)).toEqual(['delivered']);
  });

  it('that answers 500 to every third request misses nothing, and is never paused', async () => {
    const sink = await openSink((request) => (request % 3 === 0 ? 500 : 200));
    const { accountId, endpointId } = await openListener(sink.url);
    await recordEvents(test.database, accountId, 900);
    await run(endpointId);
    expect(inOrder(sink.taken)).toEqual(numbers(900));
    expect(sink.taken).toHaveLength(900);
    expect(sink.requests()).toBeLessThan(900 * 1.6);
  });

  it('that recovers while its first attempts are made is not paused', async () => {
    const isDown = (request: number) => request > 30 && request <= 230;
    const sink = await openSink((request) => (isDown(request) ? 500 : 200));
    const { accountId, endpoint } = await openListener(sink.url);
    const payoutId = await recordEvents(test.database, accountId, 300);
    await openWorker().deliver(payoutId);
    expect(sink.requests()).toBe(300);
    expect(await endpoint()).toMatchObject({ failures: 0, failingSince: null });
  });

  it('that is enabled again before its run cancels what was due misses nothing', async () => {
    const sink = await openSink(() => 200);
    const { accountId, endpointId } = await openListener(sink.url);
    await recordEvents(test.database, accountId, 3);
    expect(await cancelAll(test.database, endpointId)).toBe(false);
    await run(endpointId);
    expect(inOrder(sink.taken)).toEqual(numbers(3));
  });

  it('that breaks off every fifth of 10,000 misses nothing', async () => {
    const sink = await openSink((request) => (request % 5 === 0 ? 'drop' : 200));
    const { accountId, endpointId } = await openListener(sink.url);
    await recordEvents(test.database, accountId, 10_000);
    await run(endpointId);
    expect(inOrder(sink.taken)).toEqual(numbers(10_000));
    expect(await statuses(endpointId)).toEqual(['delivered']);
  });

  it('that has failed is tried at once when a redelivery is requested', async () => {
    const sink = await openSink(() => 500);
    const { accountId, endpointId } = await openListener(sink.url);
    await recordEvents(test.database, accountId, 40);
    await run(endpointId, 30 * minuteMs);
    sink.behave(() => 200);
    const { nextInMs } = await openWorker().deliverDue(endpointId);
    expect(nextInMs).toBeGreaterThan(minuteMs);
    await redeliverFailed(test.database, endpointId, new Date(Date.now() - hourMs));
    await openWorker().deliverDue(endpointId);
    expect(sink.taken.length).toBeGreaterThan(0);
  });
});

describe('an endpoint whose deliveries fail', { timeout: 60_000 }, () => {
  it('for five days is disabled, and the account’s other endpoints get an event', async () => {
    const sink = await openSink(() => 503);
    const receiver = await startReceiver();
    onTestFinished(() => receiver.close());
    const { accountId, endpointId, endpoint } = await openListener(sink.url);
    await addEndpoint(accountId, receiver.url, ['webhook_endpoint.disabled']);
    await recordEvents(test.database, accountId, 400);
    await run(endpointId, 119 * hourMs);
    expect(await endpoint()).toMatchObject({ status: 'enabled' });
    expect(receiver.received).toHaveLength(0);

    await run(endpointId, 3 * hourMs);
    expect(await endpoint()).toMatchObject({
      status: 'disabled',
      statusReason: 'No delivery succeeded for 5 days.',
    });
    const { body } = await receiver.next(() => true);
    expect(JSON.parse(body)).toMatchObject({
      type: 'webhook_endpoint.disabled',
      sequence: 401,
      data: { object: 'webhook_endpoint', id: endpointId, status: 'disabled', url: sink.url },
    });
    // At most one probe every 15 minutes, however much is pending.
    expect(sink.requests()).toBeLessThan(5 * 24 * 4 + 200);
    expect(await statuses(endpointId)).not.toContain('pending');

    await updateWebhookEndpoint(test.database, accountId, endpointId, { status: 'enabled' });
    expect(await endpoint()).toMatchObject({ status: 'enabled', failingSince: null });
  });

  it('starts afresh when it is enabled, and is disabled after another five days', async () => {
    const sink = await openSink(() => 500);
    const { accountId, endpointId, endpoint } = await openListener(sink.url);
    await recordEvents(test.database, accountId, 1);
    await run(endpointId, minuteMs);
    await updateWebhookEndpoint(test.database, accountId, endpointId, { status: 'enabled' });
    expect(await endpoint()).toMatchObject({ failingSince: null });
    await recordEvents(test.database, accountId, 400);
    await run(endpointId, minuteMs);
    expect(await endpoint()).toMatchObject({ failingSince: expect.any(Date) });
    // The pause is 30 s at first, and not the one after long failures.
    expect((await openWorker().deliverDue(endpointId)).nextInMs).toBeLessThan(minuteMs);
    await run(endpointId, 121 * hourMs);
    expect(await endpoint()).toMatchObject({ status: 'disabled' });
  });

  it('is not paused at a new URL, where nothing has failed', async () => {
    const sink = await openSink(() => 500);
    const { accountId, endpointId, endpoint } = await openListener(sink.url);
    await recordEvents(test.database, accountId, 60);
    await run(endpointId, 2 * hourMs);
    const receiver = await startReceiver();
    onTestFinished(() => receiver.close());
    await updateWebhookEndpoint(test.database, accountId, endpointId, { url: receiver.url });
    expect(await endpoint()).toMatchObject({ failingSince: null });
    await openWorker().deliverDue(endpointId);
    expect(receiver.received.length).toBeGreaterThan(1);
  });

  it('at its old URL is neither disabled nor marked as failing at its new one', async () => {
    const moved = Promise.withResolvers<void>();
    let requests = 0;
    const old = await startReceiver((answer) => {
      requests += 1;
      void moved.promise.then(answer);
    });
    onTestFinished(() => old.close());
    old.answerWith(410);
    const { accountId, endpointId, endpoint } = await openListener(old.url);
    await recordEvents(test.database, accountId, 1);
    await skip(endpointId, minuteMs);
    const delivering = openWorker().deliverDue(endpointId);
    await eventually(
      'the old server receives the request',
      20_000,
      () => requests === 1 || undefined,
    );
    const receiver = await startReceiver();
    onTestFinished(() => receiver.close());
    const { url } = receiver;
    await updateWebhookEndpoint(test.database, accountId, endpointId, { url });
    moved.resolve();
    await delivering;
    expect(await endpoint()).toMatchObject({ status: 'enabled', failingSince: null, url });
    // The old URL wants no more webhooks; the new one is still to get the event.
    await run(endpointId);
    expect(await statuses(endpointId)).toEqual(['delivered']);
    expect(receiver.received).toHaveLength(1);
  });

  it('because of an internal error is not marked as failing, and sees no details', async () => {
    const receiver = await startReceiver();
    onTestFinished(() => receiver.close());
    const { accountId, endpointId, endpoint } = await openListener(receiver.url);
    await recordEvents(test.database, accountId, 3);
    await skip(endpointId, minuteMs);
    // As if the endpoint had another secret, which does not exist.
    await test.database`
      update webhook_endpoints set secret_number = 2 where id = ${endpointId}`;
    const worker = openWorker();
    await worker.deliverDue(endpointId);
    expect(await endpoint()).toMatchObject({ failingSince: null });
    const rows = await test.database`
      select attempts, last_error from deliveries where endpoint_id = ${endpointId}`;
    expect([...rows]).toEqual(
      Array(3).fill({ attempts: 1, lastError: 'internal error: nothing was sent' }),
    );
    await test.database`
      update webhook_endpoints set secret_number = 1 where id = ${endpointId}`;
    await run(endpointId);
    expect(receiver.received).toHaveLength(3);
  });

  it('because workers die keeps its whole retry schedule', async () => {
    const sink = await openSink(() => 503);
    const { accountId, endpointId } = await openListener(sink.url);
    await recordEvents(test.database, accountId, 1);
    await skip(endpointId, 11_000);
    for (let death = 0; death < 12; death += 1) {
      expect(await claimDueDeliveries(test.database, endpointId, 8)).toHaveLength(1);
      await skip(endpointId, 22_005);
    }
    const { nextInMs } = await openWorker().deliverDue(endpointId);
    expect(nextInMs).toBeLessThan(7_000);
    expect(await statuses(endpointId)).toEqual(['pending']);
    expect(sink.requests()).toBe(1);
  });

  it('starts a new failure period if it was sent nothing for longer than a pause', async () => {
    const sink = await openSink(() => 500);
    const { accountId, endpointId, endpoint } = await openListener(sink.url);
    await recordEvents(test.database, accountId, 1);
    await run(endpointId);
    expect(await statuses(endpointId)).toEqual(['exhausted']);
    await skip(endpointId, 90 * 24 * hourMs);
    await recordEvents(test.database, accountId, 1);
    // As many failures that, together with the earlier ones, they would disable it.
    await run(endpointId, 10 * hourMs);
    expect(sink.requests()).toBeGreaterThan(failuresToPause);
    const shown = await endpoint();
    expect(shown?.status).toBe('enabled');
    expect(shown?.failingSince?.getTime()).toBeGreaterThan(Date.now() - 12 * hourMs);
  });

  it('is delivered to only by its own workflow, not by the writer of its events', async () => {
    const sink = await openSink(() => 500);
    const { accountId, endpointId } = await openListener(sink.url);
    await recordEvents(test.database, accountId, 40);
    await run(endpointId, minuteMs);
    const before = sink.requests();
    const [row] = await test.database<{ subjectId: string }[]>`
      select subject_id from events where account_id = ${accountId} limit 1`;
    await openWorker().deliver(row?.subjectId ?? '');
    expect(sink.requests()).toBe(before);
    // Its pause is over: one request must show whether it works again.
    await skip(endpointId, 20 * minuteMs);
    await recordEvents(test.database, accountId, 5);
    const [last] = await test.database<{ subjectId: string }[]>`
      select subject_id from events where account_id = ${accountId} order by sequence desc limit 1`;
    await openWorker().deliver(last?.subjectId ?? '');
    expect(sink.requests()).toBe(before);
    await openWorker().deliverDue(endpointId);
    expect(sink.requests()).toBe(before + 1);
  });
});

it('two runs that fail at the same endpoints in opposite orders are both counted', async () => {
  const url = 'http://127.0.0.1:9/';
  const { account } = await createTestAccount(test.database);
  const made = [await addEndpoint(account.id, url), await addEndpoint(account.id, url)];
  const [first = '', last = ''] = made.toSorted();
  const fail = (...endpointIds: readonly string[]) => {
    const failed = { url, status: 'pending', at: new Date(), latencyMs: 5 } as const;
    const results = endpointIds.map((endpointId) => ({ ...failed, endpointId }));
    return recordHealth(test.worker, results);
  };
  const runs: ReturnType<typeof recordHealth>[] = [];
  await transaction(test.database, async (sql) => {
    await sql`select from webhook_endpoints where id = ${last} for no key update`;
    // The first to wait is the first to go on: it must not need what the other one has locked.
    runs.push(fail(last, first));
    await untilLockWaits(test.database, 'the first run waits', 10_000);
    runs.push(fail(first, last));
    await untilLockWaits(test.database, 'both runs wait', 10_000, 2);
  });
  expect(await Promise.all(runs)).toEqual([[], []]);
  const counted = await test.database`
    select failures from webhook_endpoints where account_id = ${account.id}`;
  expect([...counted]).toEqual([{ failures: 2 }, { failures: 2 }]);
});

it('a host gets at most 64 requests at once, whatever the number of accounts', async () => {
  const tarpit = await startTarpit();
  onTestFinished(() => tarpit.close());
  const worker = openWorker();
  const deliverTo = async (url: string, events: number) => {
    const { accountId } = await openListener(url);
    await recordEvents(test.database, accountId, events);
    const [row] = await test.database<{ subjectId: string }[]>`
      select subject_id from events where account_id = ${accountId} limit 1`;
    await worker.deliver(row?.subjectId ?? '');
  };
  const runs = numbers(5).map(() => deliverTo(tarpit.url, 16));
  await eventually('80 deliveries are claimed', 20_000, async () => {
    const rows = await test.database`
      select from deliveries d join webhook_endpoints w on w.id = d.endpoint_id
       where w.url = ${tarpit.url} and d.attempts = 1`;
    return (rows.length === 80 && tarpit.held() === 64) || undefined;
  });
  // Deliveries without a free slot would have arrived by the time that another host gets one.
  const receiver = await startReceiver();
  onTestFinished(() => receiver.close());
  await deliverTo(receiver.url, 1);
  expect(receiver.received).toHaveLength(1);
  expect(tarpit.held()).toBe(64);
  await tarpit.close();
  await Promise.all(runs);
});
