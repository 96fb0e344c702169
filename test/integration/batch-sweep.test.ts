import { randomUUID } from 'node:crypto';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sweepIfLate } from '../../src/activities/maintenance.js';
import { cancelBatch, completeBatches, insertBatch, type NewItem } from '../../src/db/batches.js';
import { bulkTransaction, transaction } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { connectTemporal } from '../../src/temporal/client.js';
import { taskQueues } from '../../src/workflows/messages.js';
import { eventually } from '../assertions/eventually.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system?.stop());

/** A batch that the API committed before it died: no workflow was started. */
async function leaveBatch(item: NewItem): Promise<string> {
  const id = newId('batch');
  const accountId = system.account.account.id;
  await bulkTransaction(system.database, 1, (sql) =>
    insertBatch(sql, { id, accountId, mode: 'best_effort', rates: [], items: [item] }),
  );
  return id;
}

/** Sweeps as the schedule does, at a time when everything left behind is due. */
async function sweep(batchId: string): Promise<void> {
  await system.database`update batch_chunks set wake_at = now() where batch_id = ${batchId}`;
  await system.temporal.workflow.execute('sweep', {
    taskQueue: taskQueues.payouts,
    workflowId: `sweep-${randomUUID()}`,
  });
}

function untilCompleted(batchId: string): Promise<true> {
  return eventually(`${batchId} is completed`, 20_000, async () => {
    const { body } = await system.client(`GET /v1/batches/${batchId}`);
    return body['status'] === 'completed' ? true : undefined;
  });
}

describe('the sweep starts a batch whose workflow was never started', () => {
  it('as soon as a payout that was never started', async () => {
    const payout = await requestPayout(system.database, system.account.account.id);
    const id = await leaveBatch({ index: 0, refersTo: payout.id });
    const rows = await system.database<{ isAsSoon: boolean }[]>`
      select c.wake_at <= b.created_at + interval '15 seconds' as is_as_soon
        from batch_chunks c join batches b on b.id = c.batch_id where b.id = ${id}`;
    expect(rows).toEqual([{ isAsSoon: true }]);
  });

  it('also if it contains only existing payouts, and then sends its event once', async () => {
    const { client, database, account } = system;
    const payout = await requestPayout(database, account.account.id);
    const id = await leaveBatch({ index: 0, refersTo: payout.id });
    await sweep(id);
    await untilCompleted(id);
    // A second sweep finds the batch complete, and nothing remains due.
    await sweep(id);
    await eventually('no chunk is due', 20_000, async () => {
      const due = await database`
        select from batch_chunks where batch_id = ${id} and wake_at is not null`;
      return due.length === 0 ? true : undefined;
    });
    const events = await client(`GET /v1/events?type=batch.completed&batch=${id}`);
    expect(events.body['data']).toHaveLength(1);
  });
});

describe('a worker', () => {
  const log = pino({ level: 'silent' });
  /** Leaves a payout without a workflow, with the last sweep this many seconds ago. */
  async function leavePayout(secondsAgo: number): Promise<string> {
    const { database, account } = system;
    const { id } = await requestPayout(database, account.account.id);
    await database`update payouts set wake_at = now() - interval '1 second' where id = ${id}`;
    await database`select beat()`;
    await database`update heartbeats set beaten_at = now() - make_interval(secs => ${secondsAgo})`;
    return id;
  }
  const dueAt = async (id: string) =>
    (await system.database`select wake_at, status from payouts where id = ${id}`)[0];

  it('sweeps when the schedule is late', async () => {
    const id = await leavePayout(16);
    await sweepIfLate({ database: system.worker, temporal: system.temporal, log });
    await eventually('the payout is decided', 20_000, async () => {
      const { body } = await system.client(`GET /v1/payouts/${id}`);
      return body['status'] !== 'pending' || undefined;
    });
    const [beat] =
      await system.database`select now() - beaten_at < '10 s' as fresh from heartbeats`;
    expect(beat).toEqual({ fresh: true });
  });

  it('does not sweep while the schedule is on time or Temporal is unreachable', async () => {
    const id = await leavePayout(10);
    const before = await dueAt(id);
    await sweepIfLate({ database: system.worker, temporal: system.temporal, log });
    expect(await dueAt(id)).toEqual(before);

    await system.database`update heartbeats set beaten_at = now() - interval '16 seconds'`;
    const temporal = connectTemporal({
      TEMPORAL_ADDRESS: '127.0.0.1:1',
      TEMPORAL_NAMESPACE: 'default',
    });
    await sweepIfLate({ database: system.worker, temporal, log });
    expect(await dueAt(id)).toEqual(before);
    await temporal.connection.close();
  });
});

it('a batch is canceled if an item was canceled while the last one waited to close it', async () => {
  const { worker, database, account } = system;
  const id = await requestBatch(database, account.account.id, { count: 2 });
  await cancelBatch(database, id);
  let closing: ReturnType<typeof completeBatches> | undefined;
  await transaction(worker, async (sql) => {
    await completeBatches(sql, [id]);
    closing = transaction(worker, (other) => completeBatches(other, [id]));
    await eventually('the other transaction waits', 20_000, async () => {
      const waiting = await database`
        select from pg_stat_activity where wait_event_type = 'Lock' and query like '%batches%'`;
      return waiting.length > 0 || undefined;
    });
    await sql`
      update payouts set status = 'canceled', wake_at = null
       where batch_id = ${id} and batch_index = 0`;
  });
  expect(await closing).toMatchObject([{ id, status: 'canceled' }]);
});
