import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { batchActivities } from '../../src/activities/batch.js';
import { chunkActivities } from '../../src/activities/chunk.js';
import type { Activities } from '../../src/activities/index.js';
import { ledgerActivities } from '../../src/activities/ledger.js';
import { railActivities } from '../../src/activities/submission.js';
import { cancelBatch, findBatchById, statusesOfItems } from '../../src/db/batches.js';
import { countChunk } from '../../src/db/chunks.js';
import { transaction } from '../../src/db/client.js';
import { storeRailEvents } from '../../src/db/railInbox.js';
import { type BatchMode, type Chunk, chunkSize } from '../../src/domain/batch.js';
import { railKey } from '../../src/domain/payout.js';
import { createRails } from '../../src/rails/registry.js';
import { cancelBatchItems, startBatch, wakeChunks } from '../../src/temporal/workflowCalls.js';
import { eventually } from '../assertions/eventually.js';
import { keepHistory } from '../assertions/keepHistory.js';
import { QuietRail } from '../fakes/quietRail.js';
import { silentDeliverer } from '../fakes/silentDeliverer.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { keyring } from '../fixtures/keyring.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { rateMaximumAgeMs } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';
import { startTimeSkipping, type TimeSkipping } from '../servers/timeSkipping.js';

// Every path of a batch and of its chunks on the real ledger, with one history each.

let server: TimeSkipping;
let store: TestDatabase;

beforeAll(async () => {
  [server, store] = await Promise.all([startTimeSkipping(), createTestDatabase()]);
});
afterAll(async () => {
  await server.stop();
  await store.drop();
});

type RideOptions = {
  readonly count: number;
  readonly mode?: BatchMode;
  readonly funds?: bigint;
  readonly rail?: QuietRail;
  readonly instead?: Partial<Activities>;
};

/** Requests a batch and runs its workflows with everything that they need. */
async function ride(
  {
    count,
    mode = 'best_effort',
    funds = 10n ** 9n,
    rail = new QuietRail(),
    instead = {},
  }: RideOptions,
  take: (batchId: string) => Promise<void>,
): Promise<string | undefined> {
  const { database } = store;
  const { account } = await createTestAccount(database, { funds: { USD: funds } });
  const batchId = await transaction(database, (sql) =>
    requestBatch(sql, account.id, { count, mode }),
  );
  const deps = {
    database: store.worker,
    rails: createRails([rail]),
    keyring,
    rateMaximumAgeMs,
    factRules: usualFactRules,
    deliverer: silentDeliverer,
    temporal: server.client,
  };
  const activities = {
    ...ledgerActivities(deps),
    ...railActivities(deps),
    ...batchActivities(deps),
    ...chunkActivities(deps),
    ...instead,
  };
  await server.withWorkers(activities, () => take(batchId));
  return (await findBatchById(database, batchId))?.status;
}

/** Waits until the rail has received every payout; returns their IDs in the order of the request. */
async function untilSent(batchId: string, count: number): Promise<readonly string[]> {
  return eventually('the rail has received every payout', 20_000, async () => {
    const items = await statusesOfItems(store.database, batchId);
    const ids = items.filter(({ status }) => status === 'sent').map(({ id }) => id);
    return ids.length === count ? ids : undefined;
  });
}

/** Stores a report as the API does for a callback. By default the rail reports the correct amount. */
async function callBack(ids: readonly string[], amountMinor?: string): Promise<void> {
  const { database } = store;
  const [first = ''] = ids;
  const [row] = await database<{ receiveMinor: bigint }[]>`
    select receive_minor from payouts where id = ${first}`;
  const amount = amountMinor ?? `${row?.receiveMinor}`;
  const { chunks } = await storeRailEvents(
    database,
    'sandbox',
    ids.map((id) => ({
      id: `test:${id}`,
      key: railKey(id),
      report: { kind: 'settled', amountMinor: BigInt(amount), currency: 'EUR' },
    })),
  );
  await wakeChunks(server.client, chunks);
}

const resultOf = (workflowId: string) => server.client.workflow.getHandle(workflowId).result();

/**
 * Waits in real time. Awaiting a result makes the server skip time. If an activity is waiting for a
 * processor then, the next event that the server knows is the workflow's own timeout, years later.
 */
async function untilCompleted(workflowIds: readonly string[]): Promise<void> {
  await eventually('the workflows are completed', 60_000, async () => {
    const handles = workflowIds.map((id) => server.client.workflow.getHandle(id));
    const found = await Promise.all(handles.map((handle) => handle.describe()));
    return found.every(({ status }) => status.name === 'COMPLETED') ? true : undefined;
  });
}

describe('the histories of a batch contain no personal data and replay, when it is', () => {
  it('settled, of several chunks', async () => {
    const count = chunkSize + 1;
    const status = await ride({ count }, async (batchId) => {
      await startBatch(server.client, batchId);
      await callBack(await untilSent(batchId, count));
      await untilCompleted([batchId, `${batchId}/0`, `${batchId}/1`]);
      await keepHistory(server, 'batch-settled', batchId);
      await keepHistory(server, 'batch-chunk-settled-by-callback', `${batchId}/0`);
    });
    expect(status).toBe('completed');
  });

  it('settled by poll', async () => {
    const { database } = store;
    const rail = new QuietRail({ settlesAfterLookups: 1 });
    // Has the result of a five-second poll without news, but takes no time.
    const instead = { applyChunkEvents: (chunk: Chunk) => countChunk(database, chunk) };
    const status = await ride({ count: 2, rail, instead }, async (batchId) => {
      await startBatch(server.client, batchId);
      await resultOf(batchId);
      await resultOf(`${batchId}/0`);
      await keepHistory(server, 'batch-chunk-settled-by-poll', `${batchId}/0`);
    });
    expect(status).toBe('completed');
  });

  it('partly handed over', async () => {
    const status = await ride({ count: 2 }, async (batchId) => {
      await startBatch(server.client, batchId);
      const [first = '', second = ''] = await untilSent(batchId, 2);
      await callBack([first]);
      await callBack([second], '1');
      await resultOf(`${batchId}/0`);
      await keepHistory(server, 'batch-chunk-handed-over', `${batchId}/0`);
      // The payout's own workflow is parked for an operator.
      await server.client.workflow.getHandle(second).terminate();
    });
    expect(status).toBe('processing');
  });

  it('canceled', async () => {
    const status = await ride({ count: 3 }, async (batchId) => {
      await cancelBatch(store.database, batchId);
      await cancelBatchItems(server.client, batchId, 20_000);
      await resultOf(batchId);
      await keepHistory(server, 'batch-canceled', batchId);
    });
    expect(status).toBe('canceled');
  });

  it('refused as a whole', async () => {
    const options = { count: 2, mode: 'all_or_nothing', funds: 1_500n } as const;
    const status = await ride(options, async (batchId) => {
      await startBatch(server.client, batchId);
      await resultOf(batchId);
      await keepHistory(server, 'batch-refused', batchId);
    });
    expect(status).toBe('completed');
  });
});
