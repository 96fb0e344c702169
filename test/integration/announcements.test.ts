import { MockActivityEnvironment } from '@temporalio/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Announcement } from '../../src/activities/deps.js';
import { cancelBatch, insertBatch } from '../../src/db/batches.js';
import { type Sql, transaction } from '../../src/db/client.js';
import { recordWebhookEvents } from '../../src/db/events.js';
import { newId } from '../../src/db/id.js';
import { requestCancellation } from '../../src/db/payouts.js';
import { storeRailEvents } from '../../src/db/railInbox.js';
import { enableVerified, insertWebhookEndpoint } from '../../src/db/webhookEndpoints.js';
import type { BatchMode } from '../../src/domain/batch.js';
import { railKey } from '../../src/domain/payout.js';
import { createWebhookSecret } from '../../src/webhooks/signature.js';
import { eventually } from '../assertions/eventually.js';
import { QuietRail } from '../fakes/quietRail.js';
import { absentTemporal, activitiesOn } from '../fixtures/interleaving.js';
import { keyring } from '../fixtures/keyring.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';

let test: TestDatabase;

beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

/** An account with an endpoint for all events, and the activities of a separate worker. */
async function openWorker({ funds = 10_000_000n, rail = new QuietRail() } = {}) {
  const { account } = await createTestAccount(test.database, { funds: { USD: funds } });
  await insertWebhookEndpoint(test.database, keyring, {
    ...{ id: newId('webhookEndpoint'), accountId: account.id, url: 'http://127.0.0.1:1/' },
    ...{ events: ['*'], secret: createWebhookSecret(), apiVersion: '2026-06-01' },
  });
  const begun: string[] = [];
  const begin = (steps: readonly Announcement[]): void => {
    begun.push(
      ...steps.flatMap(({ id, hasPendingDeliveries }) => (hasPendingDeliveries ? [id] : [])),
    );
  };
  const activities = activitiesOn(test.worker, rail, absentTemporal(), { begin });
  return {
    accountId: account.id,
    activities,
    /** Runs a step and returns the subjects whose events are delivered after it. */
    begunBy: async (step: (all: typeof activities) => Promise<unknown>) => {
      begun.length = 0;
      await new MockActivityEnvironment().run(() => step(activities));
      return begun.toSorted();
    },
  };
}

type Worker = Awaited<ReturnType<typeof openWorker>>;

async function ownPayout({ accountId }: Worker) {
  const { id } = await requestPayout(test.database, accountId);
  return { driver: id, ids: [id], id };
}

async function openBatch({ accountId }: Worker, mode: BatchMode = 'best_effort') {
  const batchId = await transaction(test.database, (sql) =>
    requestBatch(sql, accountId, { count: 2, mode }),
  );
  const items = await test.database<{ id: string }[]>`
    select id from payouts where batch_id = ${batchId} order by id`;
  return { chunk: { batchId, number: 0 }, batchId, ids: items.map(({ id }) => id) };
}

const workflowAgeMs = 0;

describe('a step delivers its events at once:', () => {
  it('a refusal, of a single payout and in a chunk', async () => {
    const worker = await openWorker({ funds: 1n });
    const payout = await ownPayout(worker);
    const decide = worker.begunBy((all) => all.decidePayouts({ ...payout, workflowAgeMs }));
    expect(await decide).toEqual([payout.id]);
    const { chunk, ids } = await openBatch(worker);
    const accept = worker.begunBy((all) => all.acceptChunk({ ...chunk, workflowAgeMs }));
    expect(await accept).toEqual(ids);
  });

  it('a submission, and the facts in the inbox', async () => {
    const worker = await openWorker();
    const payout = await ownPayout(worker);
    expect(await worker.begunBy((all) => all.decidePayouts({ ...payout, workflowAgeMs }))).toEqual(
      [],
    );
    expect(await worker.begunBy((all) => all.submitPayouts(payout))).toEqual([payout.id]);
    const report = { kind: 'rejected', code: 'AC04', reason: 'closed' } as const;
    await storeRailEvents(test.database, 'sandbox', [
      { id: newId('event'), key: railKey(payout.id), report },
    ]);
    expect(await worker.begunBy((all) => all.applyRailEvents(payout))).toEqual([payout.id]);
  });

  it('the result of a poll', async () => {
    const worker = await openWorker({ rail: new QuietRail({ settlesAfterLookups: 1 }) });
    const payout = await ownPayout(worker);
    await worker.begunBy((all) => all.decidePayouts({ ...payout, workflowAgeMs }));
    await worker.begunBy((all) => all.submitPayouts(payout));
    const poll = worker.begunBy((all) => all.pollRail({ payoutId: payout.id }));
    expect(await poll).toEqual([payout.id]);
  });

  it('the result of a command, also when its answer was lost', async () => {
    const worker = await openWorker();
    const payout = await ownPayout(worker);
    await worker.begunBy((all) => all.decidePayouts({ ...payout, workflowAgeMs }));
    await requestCancellation(test.api, payout.driver);
    const command = { ...payout, actor: 'customer', action: `op_${crypto.randomUUID()}` } as const;
    for (let attempt = 0; attempt < 2; attempt += 1) {
      expect(await worker.begunBy((all) => all.executeCommand(command))).toEqual([payout.id]);
    }
  });

  it('a cancellation, by its workflow or by the submission that notices it', async () => {
    const worker = await openWorker();
    const canceled = await openBatch(worker);
    await cancelBatch(test.database, canceled.chunk.batchId);
    expect(await worker.begunBy((all) => all.cancelChunk(canceled.chunk))).toEqual(canceled.ids);
    const { chunk, ids } = await openBatch(worker);
    await worker.begunBy((all) => all.acceptChunk({ ...chunk, workflowAgeMs }));
    await cancelBatch(test.database, chunk.batchId);
    expect(await worker.begunBy((all) => all.submitChunk(chunk))).toEqual(ids);
  });

  it('the end of a batch that is refused as a whole or has no payouts of its own', async () => {
    const worker = await openWorker({ funds: 1n });
    const { batchId, ids } = await openBatch(worker, 'all_or_nothing');
    for (let attempt = 0; attempt < 2; attempt += 1) {
      const decide = worker.begunBy((all) => all.decideBatch({ batchId, workflowAgeMs }));
      expect(await decide).toEqual([batchId]);
    }
    const empty = newId('batch');
    await transaction(test.database, (sql) =>
      insertBatch(sql, {
        ...{ id: empty, accountId: worker.accountId, mode: 'best_effort', rates: [] },
        items: ids.map((refersTo, index) => ({ index, refersTo })),
      }),
    );
    const close = worker.begunBy((all) => all.closeEmptyBatch({ batchId: empty }));
    expect(await close).toEqual([empty]);
  });
});

it('an event that is numbered after an endpoint was enabled is delivered there', async () => {
  const { account } = await createTestAccount(test.database);
  const id = newId('webhookEndpoint');
  const url = 'http://127.0.0.1:1/';
  await insertWebhookEndpoint(test.database, keyring, {
    ...{ id, accountId: account.id, url, status: 'unverified' },
    ...{ events: ['*'], secret: createWebhookSecret(), apiVersion: '2026-06-01' },
  });
  const { id: subjectId } = await requestPayout(test.database, account.id);
  const facts = {
    status: 'sent',
    statusReason: null,
    settledAt: null,
    returnedMinor: null,
  } as const;
  const event = { accountId: account.id, type: 'payout.sent', subjectId, facts } as const;
  const record = (sql: Sql) => recordWebhookEvents(sql, [event]);
  const numbered = Promise.withResolvers<void>();
  const commit = Promise.withResolvers<void>();
  const first = test.database.begin(async (sql) => {
    await record(sql);
    numbered.resolve();
    await commit.promise;
  });
  await numbered.promise;
  const second = transaction(test.worker, record);
  await eventually('the second event waits for its number', 10_000, async () => {
    const rows = await test.database`
      select from pg_stat_activity
       where wait_event_type = 'Lock' and query like '%event_sequence%' and datname = current_database()`;
    return rows.length > 0 || undefined;
  });
  await enableVerified(test.database, id, url);
  commit.resolve();
  await Promise.all([first, second]);
  const rows = await test.database`
    select e.sequence from events e join deliveries d on d.event_id = e.id
     where d.endpoint_id = ${id}`;
  expect([...rows]).toEqual([{ sequence: 2n }]);
});
