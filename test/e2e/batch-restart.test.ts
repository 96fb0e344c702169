import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { type ComparedBatches, startComparedBatches, timeoutMs } from './comparedBatches.js';

let batches: ComparedBatches;

beforeAll(async () => {
  batches = await startComparedBatches();
}, timeoutMs);
afterAll(() => batches?.parts.remove());
// Repairs what a failed test left down, so that the next test does not fail too.
beforeEach(() => batches.parts.startAll());

it('a batch has the same result after kill -9 of all five processes in turn, while items settle gradually', {
  timeout: timeoutMs,
}, async ({ annotate }) => {
  const { parts, start, expectSameEnding } = batches;
  const batch = await start(20);
  await batch.untilSome('processing');
  for (const part of ['batch-worker', 'api', 'sandbox-bank', 'postgres', 'temporal'] as const) {
    await batch.untilSome('sent');
    await parts.crash(part);
    await parts.start(part);
  }
  await expectSameEnding(batch, annotate);
});

it('a batch has the same result, and no duplicate webhook, when its worker restarts cleanly', {
  timeout: timeoutMs,
}, async ({ annotate }) => {
  const { parts, start, expectSameEnding } = batches;
  const batch = await start();
  await batch.untilSome('settled');
  await parts.stop('batch-worker');
  await parts.start('batch-worker');
  await expectSameEnding(batch, annotate);
  expect(batch.duplicates()).toBe(0);
});

it('a batch is started by the sweep when Temporal was down as it was accepted', {
  timeout: timeoutMs,
}, async ({ annotate }) => {
  const { parts, start, expectSameEnding } = batches;
  await parts.crash('temporal');
  const batch = await start();
  await parts.start('temporal');
  await expectSameEnding(batch, annotate);
});
