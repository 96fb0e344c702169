import { expect, it } from 'vitest';
import { metered } from '../../src/rails/metered.js';
import type { Rail, Transfer } from '../../src/rails/rail.js';
import { measured } from '../../src/telemetry.js';
import { QuietRail } from '../fakes/quietRail.js';
import { beneficiary } from '../fixtures/requestPayout.js';

const transfer = (key: string): Transfer => ({
  ...{ key, amountMinor: 1n, currency: 'EUR', remittance: '' },
  beneficiary,
});

/** How often each answer was counted for an operation of the rail. */
async function answersTo(rail: Rail, operation: string) {
  const { values } = await measured.railAnswers.get();
  const own = values.filter(
    ({ labels }) => labels['rail'] === rail.name && labels['operation'] === operation,
  );
  return Object.fromEntries(own.map(({ labels, value }) => [labels['answer'], value]));
}

it('counts each answer, and what has none as unknown', async () => {
  const quiet = new QuietRail();
  const rail: Rail = metered<Rail>({ ...quiet, name: 'counted' });
  await rail.submit([transfer('a'), transfer('b')]);
  await rail.lookup(['a', 'c']);
  await rail.voidKey('a');
  expect(await answersTo(rail, 'submit')).toEqual({ accepted: 2 });
  expect(await answersTo(rail, 'lookup')).toEqual({ accepted: 1, not_found: 1 });
  expect(await answersTo(rail, 'void')).toEqual({ too_late: 1 });

  const short = metered<Rail>({ ...quiet, name: 'counted', submit: async () => [] });
  await short.submit([transfer('d')]);
  const gone = new Error('The rail is gone.');
  const down = metered<Rail>({ ...quiet, name: 'counted', submit: () => Promise.reject(gone) });
  await expect(down.submit([transfer('e'), transfer('f')])).rejects.toBe(gone);
  expect(await answersTo(rail, 'submit')).toEqual({ accepted: 2, unknown: 3 });

  const { values } = await measured.railCalls.get();
  const counts = values.filter(
    ({ metricName, labels }) =>
      metricName === 'corridor_rail_call_seconds_count' && labels.rail === 'counted',
  );
  expect(counts.map(({ labels, value }) => [labels.operation, value])).toEqual([
    ['submit', 3],
    ['lookup', 1],
    ['void', 1],
  ]);
});
