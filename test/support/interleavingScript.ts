import fc from 'fast-check';
import {
  commandKinds,
  evidenceDays,
  type Fortune,
  goodFortune,
  type Script,
  type Step,
  type WorldStep,
} from './interleaving.js';
import { bankActs, lookupManners, submitManners, voidManners } from './scriptedRail.js';

export const payoutsOfRun = 20;

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;

/** Half of all attempts fare well: a world where nothing ever works is soon at rest. */
const fortune: fc.Arbitrary<Fortune> = fc.oneof(
  { weight: 4, arbitrary: fc.constant(goodFortune) },
  {
    weight: 6,
    arbitrary: fc.record({
      submit: fc.constantFrom(...submitManners),
      lookup: fc.constantFrom(...lookupManners, 'true'),
      void: fc.constantFrom(...voidManners, 'true'),
      stopsAt: fc.oneof(
        { weight: 4, arbitrary: fc.constant(null) },
        { weight: 2, arbitrary: fc.constantFrom('submit', 'lookup', 'void') },
        { weight: 2, arbitrary: fc.integer({ min: 1, max: 7 }) },
      ),
      dies: fc.boolean(),
    }),
  },
);

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 10, arbitrary: fc.record({ do: fc.constant('drive'), fortune }) },
  {
    weight: 7,
    arbitrary: fc.record({
      do: fc.constant('ask'),
      command: fc.constantFrom(...commandKinds),
      day: fc.constantFrom(...evidenceDays),
      fortune,
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('repeat'), fortune }) },
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constant('bank'), act: fc.constantFrom(...bankActs) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('tell'),
      isLast: fc.boolean(),
      again: fc.constantFrom('no', 'no', 'same', 'new'),
    }),
  },
  { weight: 2, arbitrary: fc.constant({ do: 'resume' }) },
  { weight: 1, arbitrary: fc.constant({ do: 'park' }) },
);

const worldStep: fc.Arbitrary<WorldStep> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('wait'),
      // A minute, an answer overdue, the last repeat of a key, its end, a deadline.
      ms: fc.constantFrom(
        2 * minuteMs,
        11 * minuteMs,
        5 * hourMs,
        22 * hourMs,
        25 * hourMs,
        3 * dayMs,
        6 * dayMs,
      ),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('chunk'),
      act: fc.constantFrom('submit', 'submit', 'poll'),
      fortune,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('batch'),
      act: fc.constantFrom('cancel', 'pause', 'resume', 'handOver'),
    }),
  },
);

const timed = <T>(arbitrary: fc.Arbitrary<T>, maxLength: number, longest: number) =>
  fc.array(fc.record({ after: fc.nat(longest), step: arbitrary }), { maxLength, size: 'max' });

/** What may happen to the payouts of a run, in any order. */
export const script: fc.Arbitrary<Script> = fc.record({
  closesAfterDays: fc.nat(2),
  payouts: fc.array(
    fc.record({
      fate: fc.constantFrom('pays', 'pays', 'dies'),
      isGarbled: fc.boolean(),
      steps: timed(step, 10, 20),
    }),
    { minLength: payoutsOfRun, maxLength: payoutsOfRun },
  ),
  world: timed(worldStep, 12, 20),
});
