import { Client, Connection } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { readBacklog } from '../../src/db/backlog.js';
import { type Database, transaction } from '../../src/db/client.js';
import {
  type AttemptResult,
  claimDueDeliveries,
  type DueDelivery,
  overdueEndpoints,
  purgeDeliveries,
  recordAttempts,
  releaseClaims,
} from '../../src/db/deliveries.js';
import { claimGroups, endOverdueGroups } from '../../src/db/deliveryGroups.js';
import {
  attemptsAt,
  type DeliveryRow,
  deliveriesOf as deliveriesOfEvent,
  deliveryPosition,
  listDeliveries,
} from '../../src/db/deliveryLog.js';
import { recordWebhookEvents } from '../../src/db/events.js';
import { firstId, newId } from '../../src/db/id.js';
import { redeliverEvent, redeliverRange, redeliveryOf } from '../../src/db/redelivery.js';
import {
  deleteWebhookEndpoint,
  findWebhookEndpoint,
  insertWebhookEndpoint,
  updateWebhookEndpoint,
} from '../../src/db/webhookEndpoints.js';
import { createWebhookSecret } from '../../src/webhooks/signature.js';
import { eventually } from '../assertions/eventually.js';
import { openPlanReader } from '../assertions/plans.js';
import { startReceiver } from '../fakes/receiver.js';
import { startTarpit } from '../fakes/tarpit.js';
import { rememberSecret } from '../fakes/webhookSecrets.js';
import { startDeliveryWorker } from '../fixtures/deliveryWorker.js';
import { keyring } from '../fixtures/keyring.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  untilLockWaits,
  withoutTriggers,
} from '../servers/database.js';
import { temporalAddress } from '../servers/temporalAddress.js';

let test: TestDatabase;
let temporal: Client;

beforeAll(async () => {
  test = await createTestDatabase();
  // No worker polls this server's queues: a woken workflow makes no progress.
  temporal = new Client({
    connection: await Connection.connect({ address: temporalAddress() }),
  });
});
afterAll(async () => {
  await temporal.connection.close();
  await test.drop();
});

const startWorker = (policy?: { readonly allowPrivateAddresses: boolean }) =>
  startDeliveryWorker({ database: test.database, temporal }, policy);

type Listener = { readonly accountId: string; readonly endpointId: string };

/** An account with one endpoint that subscribes to all events. */
async function openListener(url: string): Promise<Listener> {
  const { account } = await createTestAccount(test.database);
  return { accountId: account.id, endpointId: await addEndpoint(account.id, url) };
}

async function addEndpoint(accountId: string, url: string): Promise<string> {
  const id = newId('webhookEndpoint');
  const secret = createWebhookSecret();
  await insertWebhookEndpoint(test.database, keyring, {
    ...{ id, accountId, url, events: ['*'], secret, apiVersion: '2026-06-01' },
  });
  rememberSecret({ secret });
  return id;
}

/** A payout with this many events to deliver, none of them attempted. */
async function recordPayout({ accountId }: Listener, events = 1): Promise<string> {
  const { id } = await requestPayout(test.database, accountId);
  await record(test.database, accountId, id, events);
  return id;
}

async function record(
  sql: Parameters<typeof recordWebhookEvents>[0],
  accountId: string,
  payoutId: string,
  events = 1,
): Promise<void> {
  const event = {
    accountId,
    type: 'payout.sent',
    subjectId: payoutId,
    facts: { status: 'sent', statusReason: null, settledAt: null, returnedMinor: null },
  } as const;
  await recordWebhookEvents(sql, Array(events).fill(event));
}

function deliveriesOf(
  { endpointId }: Pick<Listener, 'endpointId'>,
  database: Database = test.database,
) {
  return database<(DeliveryRow & { readonly isDue: boolean })[]>`
    select *, next_attempt_at <= now() + interval '2 seconds' as is_due
      from deliveries where endpoint_id = ${endpointId}`;
}

/** Makes deliveries due by seconds: the column stores milliseconds, and rounding may yield a future time. */
function makeDue({ endpointId }: Pick<Listener, 'endpointId'>) {
  return test.database`
    update deliveries set next_attempt_at = now() - interval '2 seconds'
     where endpoint_id = ${endpointId}`;
}

async function statusesOf(listener: Pick<Listener, 'endpointId'>): Promise<readonly string[]> {
  return (await deliveriesOf(listener)).map(({ status }) => status);
}

function untilHeld(tarpit: { readonly held: () => number }, count: number): Promise<true> {
  return eventually(`${count} attempts under way`, 20_000, () =>
    tarpit.held() === count ? true : undefined,
  );
}

/** Whether the endpoint's own workflow has been started. */
async function isWoken({ endpointId }: Listener): Promise<boolean> {
  const found = await temporal.workflow.getHandle(`webhook/${endpointId}`).describe();
  return found.status.name === 'RUNNING';
}

/** The number of signals that the endpoint's workflow got. */
async function signalsOf({ endpointId }: Listener): Promise<number> {
  const { events } = await temporal.workflow.getHandle(`webhook/${endpointId}`).fetchHistory();
  return events?.filter((one) => one.workflowExecutionSignaledEventAttributes).length ?? 0;
}

async function openTarpit() {
  const tarpit = await startTarpit();
  onTestFinished(() => tarpit.close());
  return tarpit;
}

async function openReceiver() {
  const receiver = await startReceiver();
  onTestFinished(() => receiver.close());
  return receiver;
}

describe('a receiver that does not answer', () => {
  it('occupies at most 16 attempts and 32 runs of a worker, and leaves the rest to its workflow', async () => {
    const worker = startWorker();
    const tarpit = await openTarpit();
    const slow = await openListener(tarpit.url);
    const payouts = await Promise.all(Array.from({ length: 40 }, () => recordPayout(slow)));
    let ended = 0;
    const runs = payouts.map(async (id) => {
      await worker.deliver(id);
      ended += 1;
    });
    await untilHeld(tarpit, 16);
    await eventually('eight runs end without a slot', 20_000, () =>
      ended === 8 ? true : undefined,
    );
    const left = (await deliveriesOf(slow)).filter(({ isDue }) => isDue);
    expect(left).toHaveLength(8);
    expect(left.every(({ status, attempts }) => status === 'pending' && attempts === 0)).toBe(true);
    expect(await isWoken(slow)).toBe(true);
    const signals = await signalsOf(slow);

    const receiver = await openReceiver();
    const quick = await openListener(receiver.url);
    await worker.deliver(await recordPayout(quick));
    expect(await statusesOf(quick)).toEqual(['delivered']);
    expect(ended).toBe(8);
    expect(tarpit.held()).toBe(16);
    await tarpit.close();
    await Promise.all(runs);
    // The first of many runs and the last signal the workflow, not each of the forty.
    const last = await eventually('a signal after the last', 20_000, async () => {
      const count = await signalsOf(slow);
      return count > signals ? count : undefined;
    });
    expect(last).toBeLessThan(10);
  });

  it('occupies at most 16 runs for an account, including deleted endpoints', async () => {
    const worker = startWorker();
    const tarpit = await openTarpit();
    const { account } = await createTestAccount(test.database);
    const addDue = async (url: string): Promise<Listener> => {
      const added = { accountId: account.id, endpointId: await addEndpoint(account.id, url) };
      await recordPayout(added);
      await makeDue(added);
      return added;
    };
    const runs: Promise<unknown>[] = [];
    for (let made = 1; made <= 16; made += 1) {
      const { endpointId } = await addDue(tarpit.url);
      runs.push(worker.deliverDue(endpointId));
      await untilHeld(tarpit, made);
      await deleteWebhookEndpoint(test.database, account.id, endpointId);
    }

    const receiver = await openReceiver();
    const next = await addDue(receiver.url);
    await expect(worker.deliverDue(next.endpointId)).rejects.toMatchObject({ type: 'NotYet' });
    expect(await deliveriesOf(next)).toMatchObject([{ status: 'pending', attempts: 0 }]);
    const quick = await openListener(receiver.url);
    await recordPayout(quick);
    await makeDue(quick);
    expect(await worker.deliverDue(quick.endpointId)).toEqual({ nextInMs: null });
    expect(await statusesOf(quick)).toEqual(['delivered']);
    expect(tarpit.held()).toBe(16);

    await tarpit.close();
    await Promise.all(runs);
    expect(await worker.deliverDue(next.endpointId)).toEqual({ nextInMs: null });
    expect(await statusesOf(next)).toEqual(['delivered']);
  });

  it('occupies at most four runs of groups, and waiting runs have claimed nothing', async () => {
    const worker = startWorker();
    const tarpit = await openTarpit();
    const slow = await openListener(tarpit.url);
    const group = () => Promise.all([recordPayout(slow), recordPayout(slow)]);
    const groups = await Promise.all(Array.from({ length: 7 }, group));
    const runs = groups.map((ids) => worker.deliver(...ids));
    await untilHeld(tarpit, 8);

    const receiver = await openReceiver();
    const quick = await openListener(receiver.url);
    await worker.deliver(await recordPayout(quick), await recordPayout(quick));
    expect(await statusesOf(quick)).toEqual(['delivered', 'delivered']);
    expect(tarpit.held()).toBe(8);
    const taken = (await deliveriesOf(slow)).filter(({ attempts }) => attempts > 0);
    expect(taken).toHaveLength(8);
    await tarpit.close();
    await Promise.all(runs);
  });

  it('does not hold up the other endpoints of its account', async () => {
    const worker = startWorker();
    const tarpit = await openTarpit();
    const receiver = await openReceiver();
    const account = await openListener(tarpit.url);
    const quick = { endpointId: await addEndpoint(account.accountId, receiver.url) };
    const run = worker.deliver(await recordPayout(account, 120));
    await untilHeld(tarpit, 16);
    await eventually('all events are delivered to the other endpoint', 20_000, async () => {
      const statuses = await statusesOf(quick);
      return statuses.every((status) => status === 'delivered') ? true : undefined;
    });
    expect(tarpit.held()).toBe(16);
    await tarpit.close();
    await run;
  });

  it('does not hold up the other due events of its endpoint', async () => {
    const worker = startWorker();
    const hanging: (() => void)[] = [];
    const receiver = await startReceiver((answer) => {
      if (hanging.length === 0) hanging.push(answer);
      else answer();
    });
    onTestFinished(() => receiver.close());
    const listener = await openListener(receiver.url);
    await recordPayout(listener, 60);
    await makeDue(listener);
    const run = worker.deliverDue(listener.endpointId);
    await eventually('all but the hanging one are recorded', 20_000, async () => {
      const statuses = await statusesOf(listener);
      return statuses.filter((status) => status === 'delivered').length === 59 ? true : undefined;
    });
    for (const answer of hanging) answer();
    expect(await run).toEqual({ nextInMs: null });
  });
});

describe('a worker that stops', () => {
  it('waits for attempts in progress, and leaves later events to the endpoint’s workflow', async () => {
    const worker = startWorker();
    const hanging: (() => void)[] = [];
    const receiver = await startReceiver((answer) => hanging.push(answer));
    onTestFinished(() => receiver.close());
    const listener = await openListener(receiver.url);
    worker.begin(await recordPayout(listener));
    await eventually('the attempt arrives', 20_000, () =>
      hanging.length === 1 ? true : undefined,
    );
    let isClosed = false;
    const closed = worker.close().then(() => {
      isClosed = true;
    });
    const late = await recordPayout(listener);
    await worker.deliver(late);
    expect(isClosed).toBe(false);
    for (const answer of hanging) answer();
    await closed;
    const found = await deliveriesOf(listener);
    expect(found.map(({ status, attempts }) => ({ status, attempts }))).toEqual(
      expect.arrayContaining([
        { status: 'delivered', attempts: 1 },
        { status: 'pending', attempts: 0 },
      ]),
    );
    expect(await isWoken(listener)).toBe(true);
  });
});

describe('an attempt that was claimed and not recorded', () => {
  it('is repeated after its lease, and not while its worker may still be running', async () => {
    const tarpit = await openTarpit();
    const slow = await openListener(tarpit.url);
    const payout = await recordPayout(slow);
    const living = startWorker().deliver(payout);
    await untilHeld(tarpit, 1);

    const other = startWorker();
    await other.deliver(payout);
    const { nextInMs } = await other.deliverDue(slow.endpointId);
    expect(nextInMs).toBeGreaterThan(0);
    expect(nextInMs).toBeLessThan(22_500);
    expect(tarpit.asked).toHaveLength(1);

    expect(await overdueEndpoints(test.database)).not.toContain(slow.endpointId);
    await makeDue(slow);
    // Including the sweep's five seconds, the death of a worker costs at most 30 s.
    expect(await overdueEndpoints(test.database)).toContain(slow.endpointId);
    const again = other.deliverDue(slow.endpointId);
    await untilHeld(tarpit, 2);
    expect(new Set(tarpit.asked).size).toBe(1);
    await tarpit.close();
    await Promise.all([living, again]);
  });

  it('cannot be released by its previous worker once it is claimed again', async () => {
    const { endpointId, accountId } = await openListener('http://127.0.0.1:1/');
    await recordPayout({ endpointId, accountId });
    await makeDue({ endpointId });
    const first = await claimDueDeliveries(test.database, endpointId, 8);
    await makeDue({ endpointId });
    const second = await claimDueDeliveries(test.database, endpointId, 8);
    expect([first, second].map((due) => due.map(({ attempts }) => attempts))).toEqual([[1], [2]]);
    await releaseClaims(test.database, first, 0);
    expect(await deliveriesOf({ endpointId })).toMatchObject([{ attempts: 2, isDue: false }]);
    await releaseClaims(test.database, second, 0);
    expect(await deliveriesOf({ endpointId })).toMatchObject([{ attempts: 1, isDue: true }]);
  });
});

describe('a delivery that was redelivered, claimed, and not recorded', () => {
  it.each([
    {
      how: 'released',
      leave: (due: readonly DueDelivery[]) => releaseClaims(test.database, due, 0),
    },
    { how: 'lost with its worker', leave: async () => undefined },
  ])('and then $how, can be redelivered again and keeps its log', async ({ leave }) => {
    const listener = await openListener('http://127.0.0.1:1/');
    const { accountId, endpointId } = listener;
    await recordPayout(listener);
    const claim = async () => {
      await makeDue(listener);
      return claimDueDeliveries(test.database, endpointId, 8);
    };
    const first = await claim();
    const outcome = { latencyMs: 1, httpStatus: 200, error: null, answer: null, retryInMs: 0 };
    const ended = { ...outcome, status: 'delivered', at: new Date() } as const;
    await recordAttempts(
      test.database,
      first.map((due) => ({ ...due, ...ended })),
    );
    const eventId = first[0]?.eventId ?? '';
    await redeliverEvent(test.database, eventId, endpointId);
    await leave(await claim());
    const update = (status: 'enabled' | 'disabled') =>
      updateWebhookEndpoint(test.database, accountId, endpointId, { status });
    await update('disabled');
    await update('enabled');
    expect(await statusesOf(listener)).toEqual(['canceled']);
    await redeliverEvent(test.database, eventId, endpointId);
    expect(await statusesOf(listener)).toEqual(['pending']);
    expect((await attemptsAt(test.database, eventId)).map(({ at }) => at)).toEqual([ended.at]);
  });
});

it('a delivery is purged after 30 days, but not while it is pending', async () => {
  const listener = await openListener('http://127.0.0.1:1/');
  await recordPayout(listener, 4);
  const dayMs = 24 * 60 * 60_000;
  const rows = await test.database<{ id: string }[]>`
    select id from events where account_id = ${listener.accountId} order by sequence`;
  const ages = [31, 31, 29, 0];
  await withoutTriggers(test.database, async (sql) => {
    for (const [index, { id }] of rows.entries()) {
      const aged = firstId('event', Date.now() - (ages[index] ?? 0) * dayMs) + id.slice(-16);
      await sql`update events set id = ${aged} where id = ${id}`;
      await sql`
        update deliveries set event_id = ${aged}, status = ${index === 1 ? 'pending' : 'delivered'}
         where event_id = ${id}`;
    }
  });
  // One at a time, as a run with more than one slice does.
  expect((await purgeDeliveries(test.worker, 1)).count).toBe(1);
  expect((await purgeDeliveries(test.worker, 1)).count).toBe(0);
  expect(await statusesOf(listener)).toEqual(['pending', 'delivered', 'delivered']);
});

it('a delivery is not purged while it is being redelivered', async () => {
  const listener = await openListener('http://127.0.0.1:1/');
  await recordPayout(listener);
  const eventId = firstId('event', Date.now() - 31 * 24 * 60 * 60_000) + newId('event').slice(-16);
  await withoutTriggers(test.database, async (sql) => {
    await sql`update events set id = ${eventId} where account_id = ${listener.accountId}`;
    await sql`
      update deliveries set event_id = ${eventId}, status = 'delivered'
       where endpoint_id = ${listener.endpointId}`;
  });
  let purge: ReturnType<typeof purgeDeliveries> | undefined;
  await transaction(test.database, async (sql) => {
    await redeliverEvent(sql, eventId, listener.endpointId);
    purge = purgeDeliveries(test.worker, 10);
    purge.catch(() => undefined);
    await untilLockWaits(test.worker, 'the purge waits for the delivery', 10_000);
  });
  expect(await purge).toMatchObject({ count: 0 });
  expect(await statusesOf(listener)).toEqual(['pending']);
});

it('an absent host and a private one give the same error, except in the log', async () => {
  const worker = startWorker({ allowPrivateAddresses: false });
  const receiver = await openReceiver();
  // A name with a label of 64 characters is never sent to a name server (RFC 1035).
  const absent = await openListener(`http://${'a'.repeat(64)}.example/`);
  const inside = { endpointId: await addEndpoint(absent.accountId, inLoopback(receiver.url)) };
  await worker.deliver(await recordPayout(absent));
  const [ofAbsent] = await deliveriesOf(absent);
  const [ofInside] = await deliveriesOf(inside);
  expect(ofAbsent).toMatchObject({ status: 'pending', attempts: 1, lastStatus: null });
  expect(ofAbsent?.lastError).toBe('the host does not resolve to a public address');
  expect(ofInside).toMatchObject({ lastError: ofAbsent?.lastError, lastStatus: null });
  expect(receiver.received).toEqual([]);
  const logged = worker.lines.join('');
  for (const text of [
    absent.endpointId,
    'ENOTFOUND',
    inside.endpointId,
    'the name does not resolve to',
  ]) {
    expect(logged).toContain(text);
  }
});

/** The same URL with a host name, whose address is unknown until it is resolved. */
function inLoopback(url: string): string {
  return url.replace('127.0.0.1', 'localhost');
}

describe('an endpoint that changes before its event is committed', () => {
  const deleted = ({ accountId, endpointId }: Listener) =>
    deleteWebhookEndpoint(test.database, accountId, endpointId);
  const disabled = ({ endpointId }: Listener) =>
    test.database`update webhook_endpoints set status = 'disabled' where id = ${endpointId}`;

  it.each([
    { how: 'deleted', end: deleted },
    { how: 'disabled', end: disabled },
  ])('is $how: nothing is sent, and the delivery ends as canceled', async ({ end }) => {
    const worker = startWorker();
    const receiver = await openReceiver();
    for (const isDue of [false, true]) {
      const listener = await openListener(receiver.url);
      const { id } = await requestPayout(test.database, listener.accountId);
      await transaction(test.database, async (sql) => {
        await record(sql, listener.accountId, id);
        await end(listener);
      });
      expect(await statusesOf(listener)).toEqual(['pending']);
      if (isDue) {
        await makeDue(listener);
        expect(await worker.deliverDue(listener.endpointId)).toEqual({ nextInMs: null });
      } else {
        await worker.deliver(id);
      }
      expect(await deliveriesOf(listener)).toMatchObject([{ status: 'canceled', attempts: 0 }]);
    }
    expect(receiver.received).toEqual([]);
  });
});

it('an endpoint disabled while a failed attempt is being recorded keeps no delivery until it is due', async () => {
  const worker = startWorker();
  const answer = Promise.withResolvers<() => void>();
  const receiver = await startReceiver(answer.resolve);
  onTestFinished(() => receiver.close());
  receiver.answerWith(503);
  const listener = await openListener(receiver.url);
  const { accountId, endpointId } = listener;
  await recordPayout(listener);
  await makeDue(listener);
  const run = worker.deliverDue(endpointId);
  const respond = await answer.promise;
  // Held as by the statement that records the result.
  await transaction(test.database, async (sql) => {
    await sql`select from deliveries where endpoint_id = ${endpointId} for update`;
    await updateWebhookEndpoint(test.database, accountId, endpointId, { status: 'disabled' });
  });
  respond();
  // The workflow looks again at once, and cancels what the disabling had to skip.
  expect(await run).toEqual({ nextInMs: 0 });
  expect(await worker.deliverDue(endpointId)).toEqual({ nextInMs: null });
  expect(await statusesOf(listener)).toEqual(['canceled']);
});

it('the queries for waiting deliveries do not read deleted endpoints, however many there are', async () => {
  const url = 'http://127.0.0.1:1/';
  const [listener, other] = [await openListener(url), await openListener(url)];
  await recordPayout(listener);
  await recordPayout(other);
  await makeDue(listener);
  await test.database`
    insert into webhook_endpoints (id, account_id, url, events, api_version, deleted_at)
    select 'we_deleted_' || n, ${listener.accountId}, ${url}, '{*}', '2026-06-01', now()
      from generate_series(1, 20000) n`;
  await test.database`vacuum analyze webhook_endpoints, deliveries`;
  const reader = await openPlanReader(test.url);
  onTestFinished(() => reader.close());
  for (const query of [overdueEndpoints, readBacklog]) {
    const [plan] = await reader.plansOf(() => query(reader.database));
    expect(plan?.wholeTables, plan?.text).not.toContain('webhook_endpoints');
    expect(plan?.rowsRead, plan?.text).toBeLessThanOrEqual(2_000);
  }
  const overdue = await overdueEndpoints(test.database);
  expect(overdue).toContain(listener.endpointId);
  expect(overdue).not.toContain(other.endpointId);
});

describe('first attempts at the events of many payouts', () => {
  const count = 60;

  /** Payouts that one transaction has moved, and whose events have not been attempted. */
  async function recordBatch({ accountId }: Listener, size = count): Promise<readonly string[]> {
    return transaction(test.database, async (sql) => {
      const batchId = await requestBatch(sql, accountId, { count: size });
      const items = await sql<{ id: string }[]>`select id from payouts where batch_id = ${batchId}`;
      const ids = items.map(({ id }) => id);
      const event = {
        accountId,
        type: 'payout.sent',
        facts: { status: 'sent', statusReason: null, settledAt: null, returnedMinor: null },
      } as const;
      await recordWebhookEvents(
        sql,
        ids.map((subjectId) => ({ ...event, subjectId })),
      );
      return ids;
    });
  }

  const groupsOf = ({ endpointId }: Listener) =>
    test.database`select * from delivery_groups where endpoint_id = ${endpointId}`;

  const ended = (due: DueDelivery): AttemptResult => ({
    ...due,
    ...{ at: new Date(), latencyMs: 1, httpStatus: 200, error: null, answer: null, retryInMs: 0 },
    status: 'delivered',
  });

  /** As if the worker that claimed them had been killed that long ago. */
  const expireClaims = ({ endpointId }: Listener) => test.database`
    update delivery_groups set claimed_at = claimed_at - interval '30 s',
           next_attempt_at = next_attempt_at - interval '30 s' where endpoint_id = ${endpointId}`;

  it('are pending without rows of their own, and get one row each when they are made', async () => {
    const receiver = await openReceiver();
    const listener = await openListener(receiver.url);
    const ids = await recordBatch(listener);
    const { endpointId } = listener;
    expect(await deliveriesOf(listener)).toHaveLength(0);
    const first = { limit: 20, from: null };
    const page = await listDeliveries(test.database, endpointId, first, { status: 'pending' });
    expect(page).toMatchObject({ hasMore: true, rows: { 0: { status: 'pending', attempts: 0 } } });
    const eventId = page.rows[0]?.eventId ?? '';
    expect(await deliveriesOfEvent(test.database, eventId)).toMatchObject([
      { endpointId, eventId, status: 'pending', attempts: 0, lastAttemptAt: null },
    ]);
    expect(await deliveryPosition(test.database, endpointId, eventId)).toBe(eventId);
    expect((await redeliveryOf(test.database, endpointId)).pending).toBe(count);

    await Promise.all([startWorker().deliver(...ids), startWorker().deliver(...ids)]);
    const sequences = receiver.received.map(({ body }) => JSON.parse(body).sequence);
    expect(sequences.toSorted((a, b) => a - b)).toEqual(ids.map((_, index) => index + 1));
    const rows = await deliveriesOf(listener);
    expect(rows).toHaveLength(count);
    for (const row of rows) {
      expect(row).toMatchObject({ status: 'delivered', attempts: 1, lastStatus: 200 });
    }
    expect(await groupsOf(listener)).toHaveLength(0);
  });

  it('that a killed worker has claimed are due, except those it has recorded', async () => {
    const listener = await openListener('http://127.0.0.1:1/');
    await recordBatch(listener);
    const due = await claimGroups(test.database, listener.endpointId, 1_000);
    expect(due).toHaveLength(count);
    expect(await claimGroups(test.database, listener.endpointId, 1_000)).toEqual([]);
    await recordAttempts(test.database, due.slice(0, 10).map(ended));
    await endOverdueGroups(test.database);
    expect(await groupsOf(listener)).not.toHaveLength(0);
    await expireClaims(listener);
    await endOverdueGroups(test.database);
    expect(await groupsOf(listener)).toHaveLength(0);
    const statuses = await statusesOf(listener);
    expect(statuses.filter((status) => status === 'delivered')).toHaveLength(10);
    expect(statuses.filter((status) => status === 'pending')).toHaveLength(50);
    expect(await overdueEndpoints(test.database)).toContain(listener.endpointId);
    // The attempt of the killed worker does not count.
    const again = await claimDueDeliveries(test.database, listener.endpointId, 100);
    expect(again).toHaveLength(50);
    expect(new Set(again.map(({ attempts }) => attempts))).toEqual(new Set([1]));
    // Nor does its late report, as another worker has claimed them.
    await recordAttempts(test.database, due.slice(10).map(ended));
    expect((await statusesOf(listener)).filter((status) => status === 'pending')).toHaveLength(50);
  });

  it('are recorded, even if their group has ended meanwhile', async () => {
    const listener = await openListener('http://127.0.0.1:1/');
    await recordBatch(listener);
    const due = await claimGroups(test.database, listener.endpointId, 1_000);
    await test.database`
      select end_delivery_groups(array(select id from delivery_groups
               where endpoint_id = ${listener.endpointId}), 'pending', false)`;
    expect(await statusesOf(listener)).toEqual(Array(count).fill('pending'));
    await recordAttempts(test.database, due.map(ended));
    expect(await statusesOf(listener)).toEqual(Array(count).fill('delivered'));
  });

  it('are canceled when their endpoint is disabled or deleted, including those in progress', async () => {
    for (const how of ['disabled', 'deleted']) {
      const listener = await openListener('http://127.0.0.1:1/');
      await recordBatch(listener);
      const due = await claimGroups(test.database, listener.endpointId, 50);
      const { accountId, endpointId } = listener;
      await (how === 'deleted'
        ? deleteWebhookEndpoint(test.database, accountId, endpointId)
        : updateWebhookEndpoint(test.database, accountId, endpointId, { status: 'disabled' }));
      await recordAttempts(test.database, due.map(ended));
      expect(await statusesOf(listener)).toEqual(Array(count).fill('canceled'));
      expect(await groupsOf(listener)).toHaveLength(0);
    }
  });

  it('are canceled when due, if the sweep ended their group while the endpoint was disabled', async () => {
    const receiver = await openReceiver();
    const listener = await openListener(receiver.url);
    await recordBatch(listener);
    await expireClaims(listener);
    const { accountId, endpointId } = listener;
    const ended = Promise.withResolvers<void>();
    const commit = Promise.withResolvers<void>();
    const sweeping = transaction(test.database, async (sql) => {
      await endOverdueGroups(sql);
      ended.resolve();
      await commit.promise;
    });
    await ended.promise;
    const change = { status: 'disabled' } as const;
    const disabling = updateWebhookEndpoint(test.database, accountId, endpointId, change);
    await untilLockWaits(test.database, 'the update waits for the sweep', 20_000);
    commit.resolve();
    await Promise.all([sweeping, disabling]);
    // The disabling could not see the rows that the sweep was writing.
    expect(await statusesOf(listener)).toEqual(Array(count).fill('pending'));
    expect(await overdueEndpoints(test.database)).toContain(endpointId);
    expect(await startWorker().deliverDue(endpointId)).toEqual({ nextInMs: null });
    expect(await statusesOf(listener)).toEqual(Array(count).fill('canceled'));
    expect(receiver.received).toEqual([]);
  });

  it('are due at once if their worker stops', async () => {
    const receiver = await startReceiver(() => undefined);
    onTestFinished(() => receiver.close());
    const listener = await openListener(receiver.url);
    const worker = startWorker();
    await worker.close();
    await worker.deliver(...(await recordBatch(listener)));
    await endOverdueGroups(test.database);
    expect(await groupsOf(listener)).toHaveLength(0);
    const due = await claimDueDeliveries(test.database, listener.endpointId, 100);
    expect(due).toHaveLength(count);
    for (const { attempts } of due) expect(attempts).toBe(1);
  });

  it('are neither duplicated nor brought forward by a redelivery', async () => {
    const listener = await openListener('http://127.0.0.1:1/');
    await recordBatch(listener);
    const [claimed] = await claimGroups(test.database, listener.endpointId, 50);
    const eventId = claimed?.eventId ?? '';
    const { accountId, endpointId: id } = listener;
    expect(await redeliverEvent(test.database, eventId, undefined)).toEqual([id]);
    const endpoint = await findWebhookEndpoint(test.database, accountId, id);
    if (endpoint === undefined) throw new Error(`${id} is gone`);
    await redeliverRange(test.database, endpoint, 1n, 60n);
    expect(await deliveriesOf(listener)).toHaveLength(0);
    expect(await groupsOf(listener)).toHaveLength(2);
  });

  it('are left to the workflow of an endpoint that refuses all of them', async () => {
    const receiver = await openReceiver();
    receiver.answerWith(503);
    const listener = await openListener(receiver.url);
    await startWorker().deliver(...(await recordBatch(listener, 600)));
    // At most one claim was taken before the worker noticed; the unclaimed rest is due in some seconds.
    const rows = await deliveriesOf(listener);
    expect(rows.length).toBeLessThanOrEqual(500);
    const untried = rows.filter(({ attempts, isDue }) => attempts === 0 && isDue);
    expect(untried.length).toBeGreaterThan(400);
    expect(await isWoken(listener)).toBe(true);
    const unclaimed = await groupsOf(listener);
    expect(unclaimed.length).toBeGreaterThan(0);
    for (const group of unclaimed) expect(group).toMatchObject({ claimedAt: null });
    await test.database`
      update delivery_groups set next_attempt_at = now() - interval '2 seconds'
       where endpoint_id = ${listener.endpointId}`;
    await endOverdueGroups(test.database);
    expect(await deliveriesOf(listener)).toHaveLength(600);
    expect(await groupsOf(listener)).toHaveLength(0);
  });
});
