import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { unbalancedCurrencies } from './database.js';
import { absentTemporal, Interleaving } from './interleaving.js';
import { payoutsOfRun, script } from './interleavingScript.js';
import { faultsOf, keepDiary, storyOf } from './soundness.js';
import { createVirtualTime, type VirtualTime } from './virtualClock.js';

const runs = 50;

/** A run that went wrong is worth some looks for a smaller one, and no more than a minute of them. */
const shrinks = 60;

/**
 * The runs of one seed, on a database of their own. A test file has one seed, for time stands
 * still in its whole process: two of them then share the two cores.
 */
export function proveInterleavings(seed: number): void {
  let time: VirtualTime;

  beforeAll(async () => {
    time = await createVirtualTime();
    await keepDiary(time.database);
  });
  afterAll(async () => {
    expect(await unbalancedCurrencies(time.database)).toEqual([]);
    await time.drop();
  });

  const temporal = absentTemporal();

  describe(`${payoutsOfRun} payouts and a bank that is as unkind as it may be`, () => {
    it(`never lose or double money, whatever comes between what (seed ${seed})`, async () => {
      const property = fc.asyncProperty(fc.limitShrink(script, shrinks), async (drawn) => {
        const run = new Interleaving(time, temporal, drawn);
        await run.run();
        const faults = await faultsOf(time.database, run);
        expect(faults, storyOf(run, faults)).toEqual([]);
      });
      await fc.assert(property, { seed, numRuns: runs });
    }, 300_000);
  });
}
