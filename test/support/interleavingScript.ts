import fc from 'fast-check';
import {
  type CommandKind,
  commandKinds,
  type EvidenceDay,
  evidenceDays,
  type Fortune,
  goodFortune,
  type Script,
  type Step,
  type WorldStep,
} from './interleaving.js';
import {
  type BankAct,
  bankActs,
  lookupManners,
  submitManners,
  voidManners,
} from './scriptedRail.js';

export const payoutsOfRun = 20;

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;

/** Most attempts fare badly: what simply succeeds is over before anything can come between. */
const fortune: fc.Arbitrary<Fortune> = fc.oneof(
  { weight: 3, arbitrary: fc.constant(goodFortune) },
  {
    weight: 7,
    arbitrary: fc.record({
      // An order without an answer is where everything begins.
      submit: fc.constantFrom(...submitManners, 'lost', 'unsaid', 'dropped'),
      lookup: fc.constantFrom(...lookupManners, 'true', 'true'),
      void: fc.constantFrom(...voidManners, 'true', 'true'),
      stopsAt: fc.oneof(
        { weight: 4, arbitrary: fc.constant(null) },
        { weight: 3, arbitrary: fc.constantFrom('submit', 'lookup', 'void') },
        { weight: 3, arbitrary: fc.integer({ min: 1, max: 5 }) },
      ),
      dies: fc.constantFrom(false, false, true),
    }),
  },
);

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 9,
    arbitrary: fc.record({ do: fc.constant('drive'), isRetry: fc.boolean(), fortune }),
  },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant('ask'),
      command: fc.constantFrom(...commandKinds, 'cancel'),
      day: fc.constantFrom(...evidenceDays),
      fortune,
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('repeat'), fortune }) },
  {
    weight: 6,
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
  { weight: 3, arbitrary: fc.constant({ do: 'resume' }) },
  { weight: 2, arbitrary: fc.constant({ do: 'park' }) },
);

const day: fc.Arbitrary<EvidenceDay> = fc.constantFrom(...evidenceDays);

const waiting = (...ms: readonly [number, ...number[]]): fc.Arbitrary<Step> =>
  fc.record({ do: fc.constant('wait'), ms: fc.constantFrom(...ms) });
const driving = (how: Partial<Fortune>, isRetry = false): fc.Arbitrary<Step> =>
  fc.constant({ do: 'drive', isRetry, fortune: { ...goodFortune, ...how } });
const asking = (command: CommandKind, how: Partial<Fortune> = {}): fc.Arbitrary<Step> =>
  day.map((given) => ({
    do: 'ask',
    command,
    day: given,
    fortune: { ...goodFortune, ...how },
  }));
const banking = (...acts: readonly [BankAct, ...BankAct[]]): fc.Arbitrary<Step> =>
  fc.record({ do: fc.constant('bank'), act: fc.constantFrom(...acts) });

const telling: fc.Arbitrary<Step> = fc.constant({ do: 'tell', isLast: false, again: 'no' });
const resuming: fc.Arbitrary<Step> = fc.constant({ do: 'resume' });
const parking: fc.Arbitrary<Step> = fc.constant({ do: 'park' });
const unanswered = fc.oneof(
  driving({ submit: 'lost' }),
  driving({ submit: 'unsaid' }),
  driving({ submit: 'late' }),
  driving({ submit: 'dropped' }),
);
const answered = driving({ submit: 'taken' });
const asleep = fc
  .integer({ min: 1, max: 5 })
  .chain((stopsAt) =>
    fc.oneof(
      driving({ stopsAt }),
      { weight: 2, arbitrary: asking('cancel', { stopsAt }) },
      asking('release', { stopsAt }),
    ),
  );
const voiding = fc.oneof(
  asking('cancel', { void: 'lost' }),
  asking('cancel', { void: 'fails' }),
  asking('cancel', { stopsAt: 'void' }),
  asking('cancel', { stopsAt: 'void', dies: true }),
  asking('release', { void: 'lost' }),
  asking('release', { stopsAt: 'void' }),
);

/** The bank forgets a key that it has paid, or will. */
const forgotten = fc.tuple(
  unanswered,
  banking('pays', 'takesLate'),
  waiting(25 * hourMs, 22 * hourMs),
  fc.oneof(asking('cancel'), parking),
  asking('release'),
);

/** A process sleeps for a day while others go on. */
const slept = fc.oneof(
  fc.tuple(unanswered, asleep, banking('pays', 'takesLate'), waiting(25 * hourMs), resuming),
  fc.tuple(asleep, unanswered, banking('pays', 'takesLate'), waiting(25 * hourMs), resuming),
);

/** The bank contradicts itself, in any order and whatever else the payout waits for. */
const contradicted = fc
  .tuple(answered, fc.oneof(parking, banking('misreports', 'callsDuplicate')))
  .chain((first) =>
    fc
      .tuple(
        banking('misreports', 'paysMore'),
        banking('rejects', 'callsDuplicate', 'pays'),
        telling,
        telling,
        driving({ stopsAt: 'lookup' }, true),
        driving({}, true),
        resuming,
      )
      .chain((rest) => fc.shuffledSubarray(rest, { minLength: 5 }))
      .map((rest) => [...first, ...rest]),
  );

/** A void whose answer comes late, or never. */
const voided = fc.oneof(
  fc.tuple(unanswered, voiding, fc.oneof(unanswered, answered), fc.oneof(resuming, step), step),
  fc.tuple(unanswered, parking, voiding, fc.oneof(unanswered, answered, resuming), step),
);

/** Money comes back, more than once. */
const returned = fc.tuple(
  answered,
  banking('pays'),
  telling,
  banking('returnsHalf', 'returnsOne', 'returnsMost'),
  telling,
  banking('returnsHalf', 'returnsAll'),
  telling,
);

/** The order is sent again, and a day of the first attempt is given as evidence. */
const sentAgain = fc.tuple(
  unanswered,
  waiting(22 * hourMs, 5 * hourMs),
  unanswered,
  waiting(3 * dayMs, 6 * dayMs),
  parking,
  asking('releaseOnStatement'),
);

/**
 * Beginnings that chance alone would make too seldom; it has its say in each of them. Few of them
 * let a day go by, for that is a day for all.
 */
const plot: fc.Arbitrary<readonly Step[]> = fc.oneof(
  { weight: 1, arbitrary: forgotten },
  { weight: 2, arbitrary: slept },
  { weight: 5, arbitrary: contradicted },
  { weight: 5, arbitrary: voided },
  { weight: 3, arbitrary: returned },
  { weight: 1, arbitrary: sentAgain },
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

/** The longest of all stories. */
const maximumSteps = 14;

/** At once, mostly, so that little comes between; or after much of what the others do. */
const gap = fc.oneof({ weight: 3, arbitrary: fc.nat(1) }, { weight: 1, arbitrary: fc.nat(30) });

/** Steps, each some moments after the one before. */
const timed = <T>(steps: fc.Arbitrary<readonly T[]>) =>
  fc
    .tuple(steps, fc.array(gap, { minLength: maximumSteps, maxLength: maximumSteps }))
    .map(([all, gaps]) => all.map((one, index) => ({ after: gaps[index] ?? 0, step: one })));

const listOf = <T>(arbitrary: fc.Arbitrary<T>, maxLength: number) =>
  fc.array(arbitrary, { maxLength, size: 'max' });

/** A plot with something before or after it, or whatever comes. */
const story = fc.oneof(
  { weight: 1, arbitrary: listOf(step, 10) },
  {
    weight: 2,
    arbitrary: fc
      .tuple(listOf(step, 1), plot, listOf(step, 3))
      .map(([before, main, after]) => [...before, ...main, ...after]),
  },
);

/** What may happen to the payouts of a run, in any order. */
export const script: fc.Arbitrary<Script> = fc.record({
  closesAfterDays: fc.nat(2),
  payouts: fc.array(
    fc.record({
      fate: fc.constantFrom('pays', 'pays', 'dies'),
      isGarbled: fc.boolean(),
      steps: timed<Step>(story),
    }),
    { minLength: payoutsOfRun, maxLength: payoutsOfRun },
  ),
  world: timed<WorldStep>(listOf(worldStep, 10)),
});
