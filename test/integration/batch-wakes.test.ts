import { randomUUID } from 'node:crypto';
import { WorkflowNotFoundError } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cancelItems } from '../../src/activities/cancellation.js';
import { transaction } from '../../src/db/client.js';
import type { AttentionReason } from '../../src/domain/payout.js';
import { searchAttributes, taskQueues } from '../../src/workflows/messages.js';
import { eventually } from '../assertions/eventually.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import {
  type BatchPayer,
  countsOf,
  openBatchPayer,
  rowsOf,
  sendPaused,
  untilAtRest,
  untilBatch,
  untilRows,
  wakeBatch,
} from '../fixtures/batchPayer.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

// Batch items that have a separate workflow, and are moved by another process.

let system: TestSystem;
let receiver: Receiver;

beforeAll(async () => {
  [system, receiver] = await Promise.all([startSystem(), startReceiver()]);
});
afterAll(async () => {
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
  await receiver.close();
  await system.stop();
});

const handleOf = (id: string) => system.temporal.workflow.getHandle(id);

/** The search attribute by which operators find a payout; undefined before its workflow has begun. */
async function needsAttention(id: string): Promise<boolean | undefined> {
  try {
    const { typedSearchAttributes } = await handleOf(id).describe();
    return typedSearchAttributes.get(searchAttributes.needsAttention);
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return undefined;
    throw error;
  }
}

/** Parks a payout of a batch as its chunk would, and waits until operators can find it. */
async function park(batchId: string, id: string, reason: AttentionReason): Promise<void> {
  await system.database`
    update payouts set attention_reason = ${reason}, attention_detail = 'a test',
           attention_at = now() where id = ${id}`;
  await wakeBatch(system, batchId);
  await untilRows(system, batchId, (rows) => rows.some((row) => row.driver === id));
  await eventually(`${id} needs attention`, 20_000, async () =>
    (await needsAttention(id)) === true ? true : undefined,
  );
}

/** An accepted, paused batch of three, of which the first payout is parked. */
async function withOneParked(): Promise<{ payer: BatchPayer; batchId: string; ids: string[] }> {
  const payer = await openBatchPayer(system, 6_000n);
  await payer.client('POST /v1/webhook_endpoints', { json: { url: receiver.url, events: ['*'] } });
  const items = ['n 0', 'n 1', 'n 2'].map((name) => payer.item(name));
  const batchId = await sendPaused(system, payer, items);
  await untilBatch(payer.client, batchId, ({ counts }) => counts['processing'] === 3);
  await untilAtRest(system, batchId);
  const ids = (await rowsOf(system, batchId)).map(({ id }) => id);
  await park(batchId, ids[0] ?? '', 'unexpected_failure');
  return { payer, batchId, ids };
}

const wakeTimes = (batchId: string) => system.database<{ wakeAt: Date | null }[]>`
  select wake_at from payouts where batch_id = ${batchId} order by batch_index`;

describe('a parked item whose batch is canceled', () => {
  it('is canceled with the others, and its own workflow ends and needs no attention', async () => {
    const { payer, batchId, ids } = await withOneParked();
    const [first = ''] = ids;
    const answer = await payer.client(`POST /v1/batches/${batchId}/cancel`);
    expect(answer).toMatchObject({ status: 200, body: { status: 'canceled' } });
    expect(countsOf(await untilBatch(payer.client, batchId))).toEqual({ canceled: 3 });
    expect(await handleOf(first).result()).toBe('canceled');
    expect(await needsAttention(first)).toBe(false);
    expect(await payer.balance()).toEqual({ available: 6_000n, held: 0n });
    for (const id of ids) {
      await receiver.next(({ body }) => body.includes(`"${id}"`) && body.includes('canceled'));
    }
    // It was woken, so nothing is left for the sweep.
    expect((await wakeTimes(batchId)).map(({ wakeAt }) => wakeAt)).toEqual([null, null, null]);
  });

  it('is woken by the sweep if the canceling process died before it woke it', async () => {
    const { batchId, ids } = await withOneParked();
    const [first = ''] = ids;
    await transaction(system.database, (sql) => cancelItems(sql, usualFactRules, ids));
    const [own, ...rest] = (await wakeTimes(batchId)).map(({ wakeAt }) => wakeAt !== null);
    expect({ own, rest }).toEqual({ own: true, rest: [false, false] });
    const sweep = async () => {
      await system.database`update payouts set wake_at = now() where id = ${first} and wake_at is not null`;
      await system.temporal.workflow.execute('sweep', {
        taskQueue: taskQueues.payouts,
        workflowId: `sweep-${randomUUID()}`,
      });
    };
    await sweep();
    expect(await handleOf(first).result()).toBe('canceled');
    expect(await needsAttention(first)).toBe(false);
    // Woken once, not every ten seconds for ever.
    await sweep();
    expect((await wakeTimes(batchId))[0]).toEqual({ wakeAt: null });
  });
});

describe('an item that needs attention before its all-or-nothing batch is decided', () => {
  it.each([
    { decision: 'accepted', funds: 4_000n, status: 'processing' },
    { decision: 'refused', funds: 3_999n, status: 'failed' },
  ])(
    'is looked at again by its workflow when all items are $decision',
    async ({ funds, status }) => {
      const payer = await openBatchPayer(system, funds);
      await system.stopWorker();
      const items = [payer.item('n 0'), payer.item('n 1')];
      const batchId = await payer.send(items, 'all_or_nothing');
      const [first = ''] = (await rowsOf(system, batchId)).map(({ id }) => id);
      // The state that its chunk leaves when the rail reports about a payout that was never sent to it.
      await system.database`
      update payouts set driver = id, attention_reason = 'contradiction',
             attention_detail = 'a test', attention_at = now() where id = ${first}`;
      await system.startWorker();
      await untilRows(system, batchId, ([row]) => row?.status === status);
      await eventually(`${first} needs attention`, 10_000, async () =>
        (await needsAttention(first)) === true ? true : undefined,
      );
      expect((await wakeTimes(batchId))[0]).not.toEqual({ wakeAt: null });
      await handleOf(first).terminate();
    },
  );
});
