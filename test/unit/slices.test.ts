import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { decodeInSteps } from '../../src/api/decode.js';
import { createPace, inSlices, type Steps } from '../../src/api/slices.js';
import { atOnce, decodeBody } from '../fixtures/decodeBody.js';

/** A number of steps, each of which blocks the process for a while. */
function* busy(steps: number, stepMs: number): Steps<number> {
  for (let step = 0; step < steps; step += 1) {
    const endMs = performance.now() + stepMs;
    while (performance.now() < endMs);
    yield;
  }
  return steps;
}

/** The number of event loop turns until the work was done. */
async function turnsDuring(work: Promise<unknown>): Promise<number> {
  let isDone = false;
  let turns = 0;
  void work.finally(() => {
    isDone = true;
  });
  while (!isDone) {
    await setImmediate();
    turns += 1;
  }
  return turns;
}

describe('long work', () => {
  it('lets other work run after each slice', async () => {
    // Each of 50 steps is longer than a slice.
    expect(await turnsDuring(inSlices(busy(50, 2)))).toBeGreaterThanOrEqual(50);
  });

  it('runs one slice per turn of the event loop, however many callers there are', async () => {
    const work = [1, 2, 3, 4].map(() => inSlices(busy(25, 2)));
    expect(await turnsDuring(Promise.all(work))).toBeGreaterThanOrEqual(100);
  });

  it('continues after other work of its kind has failed', async () => {
    function* failing(): Steps<never> {
      yield* busy(3, 2);
      throw new Error('a test');
    }
    const [failed, done] = await Promise.allSettled([inSlices(failing()), inSlices(busy(5, 2))]);
    expect(failed.status).toBe('rejected');
    expect(done).toEqual({ status: 'fulfilled', value: 5 });
  });

  it('does not pause within a slice', () => {
    expect(createPace()()).toBeUndefined();
    expect(atOnce(busy(3, 0))).toBe(3);
  });

  const item = { beneficiary: 'bnf_1', source_currency: 'USD', amount: 5_000 };
  const items = Array.from({ length: 10_000 }, () => item);
  const names = Object.keys(item).join(',');
  const row = Object.values(item).join(',');
  it.each([
    ['application/json', JSON.stringify({ payouts: items })],
    ['application/x-ndjson', items.map((each) => JSON.stringify(each)).join('\n')],
    ['text/csv', [names, ...items.map(() => row)].join('\n')],
    [
      'application/x-www-form-urlencoded',
      items
        .flatMap((each, index) =>
          Object.entries(each).map(([name, value]) => `payouts[${index}][${name}]=${value}`),
        )
        .join('&'),
    ],
  ])('includes decoding %s, with the same result in slices', async (type, text) => {
    const decoding = inSlices(decodeInSteps(Buffer.from(text), type, true));
    expect(await turnsDuring(decoding)).toBeGreaterThan(5);
    expect(await decoding).toEqual(decodeBody(Buffer.from(text), type, true));
  });
});
