import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { PayoutStatus } from '../../src/domain/payout.js';
import type { PartName } from '../servers/processes.js';
import { type ComparedBatches, items, startComparedBatches, timeoutMs } from './comparedBatches.js';
import { expectedItems } from './orderedBatch.js';

let batches: ComparedBatches;

beforeAll(async () => {
  batches = await startComparedBatches();
}, timeoutMs);
afterAll(() => batches?.parts.remove());
// Repairs what a failed test left down, so that the next test does not fail too.
beforeEach(() => batches.parts.startAll());

it('a batch ends as its orders say when no process fails', () => {
  const { undisturbed } = batches;
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
    const { parts, start, expectSameEnding } = batches;
    const batch = await start();
    await batch.untilSome(status);
    await parts.crash(part);
    await parts.start(part);
    await expectSameEnding(batch, annotate);
  });
});
