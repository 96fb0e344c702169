import { expect, it } from 'vitest';
import { createRegistry } from '../../src/metrics.js';
import { metered } from '../../src/rails/metered.js';
import type { Rail, Transfer } from '../../src/rails/rail.js';
import { QuietRail } from '../fakes/quietRail.js';
import { beneficiary } from '../fixtures/requestPayout.js';

const transfer = (key: string): Transfer => ({
  ...{ key, amountMinor: 1n, currency: 'EUR', remittance: '' },
  beneficiary,
});

const registry = await createRegistry('test');

/** The metrics of this rail, one per line: `rail_answers_total submit accepted 2`. */
async function shown(): Promise<readonly string[]> {
  const lines = (await registry.metrics()).split('\n');
  return lines
    .filter((line) => line.includes('rail="counted"') && !line.includes('_bucket'))
    .map((line) =>
      line.replace(
        /^corridor_(\w+)\{.*?operation="(\w+)"(?:,answer="(\w+)")?.*\} (.*)$/,
        '$1 $2 $3 $4',
      ),
    );
}

it('counts each answer, and orders without an answer as unknown', async () => {
  const { limits, submit, lookup, voidKey, statement } = new QuietRail();
  const quiet: Rail = { name: 'counted', limits, submit, lookup, voidKey, statement };
  const rail: Rail = metered(quiet);
  await rail.submit([transfer('a'), transfer('b')]);
  await rail.lookup(['a', 'c']);
  await rail.voidKey('a');
  expect(await shown()).toEqual(
    expect.arrayContaining([
      'rail_answers_total submit accepted 2',
      'rail_answers_total lookup accepted 1',
      'rail_answers_total lookup not_found 1',
      'rail_answers_total void too_late 1',
    ]),
  );

  const short = metered<Rail>({ ...quiet, submit: async () => [] });
  await short.submit([transfer('d')]);
  const gone = new Error('The rail is gone.');
  const down = metered<Rail>({ ...quiet, submit: () => Promise.reject(gone) });
  await expect(down.submit([transfer('e'), transfer('f')])).rejects.toBe(gone);
  const all = await shown();
  expect(all.filter((line) => line.startsWith('rail_answers_total submit'))).toEqual([
    'rail_answers_total submit accepted 2',
    'rail_answers_total submit unknown 3',
  ]);
  expect(all.filter((line) => line.startsWith('rail_call_seconds_count'))).toEqual([
    'rail_call_seconds_count submit  3',
    'rail_call_seconds_count lookup  1',
    'rail_call_seconds_count void  1',
  ]);
});
