import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { PayoutStatus } from '../../src/domain/payout.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { type PartName, type Processes, startProcesses } from '../servers/processes.js';
import {
  distinctEvents,
  type Ending,
  expectedItems,
  type OrderedBatch,
  startOrderedBatch,
} from './orderedBatch.js';

/** Two chunks of two groups each. The same with 10,000 items takes too long for every test run. */
const items = Number.parseInt(process.env['CRASH_ITEMS'] ?? '2000', 10);

/**
 * A deadline for a slow and busy machine, six times what a quiet one takes, not the promised time: the
 * annotations report the actual time.
 */
const limitMs = 180_000;

/** For a crash as soon as a status is reached, which takes a minute at most, and the end. */
const timeoutMs = limitMs + 60_000;

let parts: Processes;
let undisturbed: Ending;
const batches: OrderedBatch[] = [];

async function startBatch(spreadS?: number): Promise<OrderedBatch> {
  const batch = await startOrderedBatch(parts, items, spreadS);
  batches.push(batch);
  return batch;
}

beforeAll(async () => {
  parts = await startProcesses();
  const batch = await startBatch();
  await batch.untilOver(limitMs);
  undisturbed = await batch.ending();
}, timeoutMs);
afterAll(() => parts?.remove());
// Repairs what a failed test left down, so that the next test does not fail too.
beforeEach(() => parts.startAll());
afterEach(async () => {
  for (const { receiver } of batches.splice(0)) await receiver.close();
});

type Annotate = (message: string) => Promise<unknown>;

/** Waits for the end after the last repair, and verifies that it equals that of an undisturbed batch. */
async function expectSameEnding(batch: OrderedBatch, annotate: Annotate): Promise<void> {
  const repairedMs = performance.now();
  await batch.untilOver(limitMs);
  const seconds = ((performance.now() - repairedMs) / 1000).toFixed(1);
  await annotate(`over ${seconds} s after the last repair, ${batch.duplicates()} webhooks twice`);
  expect(await batch.ending()).toEqual(undisturbed);
  const events = await parts.database<{ id: string }[]>`
    select d.event_id as id from deliveries d join events e on e.id = d.event_id
     where e.account_id = ${batch.accountId}`;
  expect(distinctEvents(batch.receiver)).toEqual(new Set(events.map(({ id }) => id)));
  expect(await unbalancedCurrencies(parts.database)).toEqual([]);
}

it('a batch ends as its orders say when no process fails', () => {
  expect(undisturbed.items).toMatchObject(expectedItems(items));
  expect(undisturbed.batch).toMatchObject({
    status: 'completed',
    counts: { total: items, settled: items * 0.95, failed: items * 0.05, processing: 0 },
  });
  expect(undisturbed.eventsOfBatch).toEqual(['batch.completed']);
  expect(undisturbed.missingSequences).toBe(0n);
});

describe('a batch has the same result after kill -9', { timeout: timeoutMs }, () => {
  // The rows show when each moment has come; none is after the end, as some items settle after two seconds.
  const killed: readonly [PartName, PayoutStatus][] = [
    ['batch-worker', 'processing'],
    ['batch-worker', 'settled'],
    ['api', 'sent'],
    ['sandbox-bank', 'processing'],
    ['postgres', 'sent'],
    ['temporal', 'processing'],
  ];
  it.for(killed)('of %s while items are %s', async ([part, status], { annotate }) => {
    const batch = await startBatch();
    await batch.untilSome(status);
    await parts.crash(part);
    await parts.start(part);
    await expectSameEnding(batch, annotate);
  });

  it('of all five processes in turn, while items settle gradually', async ({ annotate }) => {
    const batch = await startBatch(20);
    await batch.untilSome('processing');
    for (const part of ['batch-worker', 'api', 'sandbox-bank', 'postgres', 'temporal'] as const) {
      await batch.untilSome('sent');
      await parts.crash(part);
      await parts.start(part);
    }
    await expectSameEnding(batch, annotate);
  });
});

it('a batch has the same result, and no duplicate webhook, when its worker restarts cleanly', {
  timeout: timeoutMs,
}, async ({ annotate }) => {
  const batch = await startBatch();
  await batch.untilSome('settled');
  await parts.stop('batch-worker');
  await parts.start('batch-worker');
  await expectSameEnding(batch, annotate);
  expect(batch.duplicates()).toBe(0);
});

it('a batch is started by the sweep when Temporal was down as it was accepted', {
  timeout: timeoutMs,
}, async ({ annotate }) => {
  await parts.crash('temporal');
  const batch = await startBatch();
  await parts.start('temporal');
  await expectSameEnding(batch, annotate);
});
