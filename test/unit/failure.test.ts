import { ApplicationFailure } from '@temporalio/common';
import { expect, it } from 'vitest';
import { failAfterAttempts, retryLater } from '../../src/activities/failure.js';
import { attempt } from '../fixtures/attempt.js';

const outage = Object.assign(new Error('connection refused'), { code: 'ECONNREFUSED' });
const fault = new Error('column "rail" does not exist');

/** Makes attempts of one activity, with the error of each. Returns the number of the one that was the last. */
async function endOf(errors: readonly (Error | undefined)[]): Promise<number | undefined> {
  // Forgets what the test before has counted for the same activity.
  await attempt(() => failAfterAttempts(Promise.resolve()));
  for (const [place, error] of errors.entries()) {
    const step = () => failAfterAttempts(error ? Promise.reject(error) : Promise.resolve());
    const failure: unknown = await attempt(step, place + 1).catch((thrown: unknown) => thrown);
    if (failure instanceof ApplicationFailure && failure.nonRetryable === true) return place + 1;
  }
  return undefined;
}

const times = <T>(count: number, value: T): readonly T[] =>
  Array.from({ length: count }, () => value);

it('a step that always fails is ended at its tenth attempt', async () => {
  expect(await endOf(times(20, fault))).toBe(10);
});

it.each([
  ['outages of the database', outage],
  ['waiting for the bank', retryLater('no answer yet')],
])('%s is no bug, however long, and does not count towards one', async (_, error) => {
  expect(await endOf(times(100, error))).toBeUndefined();
  expect(await endOf([...times(100, error), fault, fault, ...times(5, error)])).toBeUndefined();
  expect(await endOf([...times(100, error), ...times(5, fault)])).toBe(103);
});

it('a step that succeeds in between begins anew', async () => {
  const few = [...times(9, outage), fault, fault, undefined];
  expect(await endOf([...few, ...few])).toBeUndefined();
});
