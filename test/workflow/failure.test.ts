import { ApplicationFailure } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { DefaultLogger } from '@temporalio/worker';
import { expect, it } from 'vitest';
import { failAfterAttempts, retryLater } from '../../src/activities/failure.js';

// The logger hides the failures that the tests throw.
const logger = new DefaultLogger('ERROR');

const outage = Object.assign(new Error('connection refused'), { code: 'ECONNREFUSED' });
const fault = new Error('column "rail" does not exist');

let activities = 0;

/** Makes attempts of one activity, with the error of each. Returns the number of the one that was the last. */
async function endOf(errors: readonly Error[]): Promise<number | undefined> {
  const activityId = `${activities++}`;
  for (const [place, error] of errors.entries()) {
    const environment = new MockActivityEnvironment({ activityId, attempt: place + 1 }, { logger });
    const step = () => failAfterAttempts(Promise.reject(error));
    const failure: unknown = await environment.run(step).catch((thrown: unknown) => thrown);
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
