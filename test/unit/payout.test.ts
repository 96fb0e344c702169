import { readFile } from 'node:fs/promises';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type Effect,
  effectOf,
  type PayoutFact,
  type PayoutState,
} from '../../src/domain/factEffect.js';
import { parseRate } from '../../src/domain/fx.js';
import type { Entry } from '../../src/domain/ledger.js';
import {
  type AttentionReason,
  attentionReasons,
  isFinal,
  nextStatuses,
  type PayoutStatus,
  payoutStatuses,
  railKey,
  withAttention,
} from '../../src/domain/payout.js';
import { type Progress, progressOf } from '../../src/domain/progress.js';
import { usualFactRules } from '../fixtures/factRules.js';

/** 1,000.00 USD that are converted to 852.02 EUR, with both parts of a margin. */
const frozen = {
  sourceCurrency: 'USD',
  destinationCurrency: 'EUR',
  sourceMinor: 100_000n,
  feeMinor: 430n,
  netMinor: 99_570n,
  receiveMinor: 85_200n,
  midValueMinor: 85_630n,
  rate: parseRate('0.8557'),
} as const;

const back = { currency: 'EUR', code: 'AM04', reason: 'Insufficient funds' } as const;
const facts = {
  accepted: { kind: 'accepted', reference: 'bank-1' },
  settled: { kind: 'settled', amountMinor: 85_200n, currency: 'EUR' },
  rejected: { kind: 'rejected', code: 'AC04' },
  returned: { kind: 'returned', amountMinor: 85_200n, ...back },
  short: { kind: 'returned', amountMinor: 85_000n, ...back },
  voided: { kind: 'voided' },
  withdrawn: { kind: 'withdrawn' },
  released: { kind: 'released' },
} as const satisfies Record<string, PayoutFact>;
type FactName = keyof typeof facts;

/** Reports with another amount or currency than was sent. */
const mismatches: readonly PayoutFact[] = [
  { kind: 'settled', amountMinor: 85_199n, currency: 'EUR' },
  { kind: 'settled', amountMinor: 85_201n, currency: 'EUR' },
  { kind: 'settled', amountMinor: 85_200n, currency: 'USD' },
  { kind: 'settled', amountMinor: 0n, currency: 'EUR' },
  { kind: 'returned', amountMinor: 85_201n, ...back },
  { kind: 'returned', amountMinor: 85_200n, ...back, currency: 'USD' },
  { kind: 'returned', amountMinor: 0n, ...back },
  { kind: 'returned', amountMinor: -1n, ...back },
];

/** A payout in this status with a cancellation begun. A returned one was returned in full. */
function payoutThatIs(status: PayoutStatus): typeof frozen & PayoutState {
  const returnedMinor = status === 'returned' ? 85_200n : null;
  const clear = { attentionReason: null, voidIntent: 'canceled', corrected: 'nothing' } as const;
  return { ...frozen, ...clear, status, returnedMinor };
}

function effectFrom(status: PayoutStatus, fact: PayoutFact): Effect {
  return effectOf(payoutThatIs(status), fact, usualFactRules);
}

function shown(effect: Effect): string {
  switch (effect.kind) {
    case 'none':
      return '-';
    case 'move':
      return effect.path.join(' → ');
    case 'park':
      return `parks: ${effect.reason}`;
  }
}

function progressFrom(status: PayoutStatus, ...reported: readonly PayoutFact[]): Progress {
  return progressOf(payoutThatIs(status), reported, usualFactRules);
}

/** The sum of all entries on each account. */
function sumsOf(entries: readonly Entry[]): Readonly<Record<string, bigint>> {
  const sums: Record<string, bigint> = {};
  for (const { account, currency, amountMinor } of entries.flatMap(({ postings }) => postings)) {
    const name = `${account} ${currency}`;
    sums[name] = (sums[name] ?? 0n) + amountMinor;
  }
  return Object.fromEntries(Object.entries(sums).filter(([, sum]) => sum !== 0n));
}

function kindsOf({ entries }: Progress): readonly string[] {
  return entries.map(({ kind }) => kind);
}

const anyFact = fc.constantFrom(...Object.values(facts), ...mismatches);
const anyStatus = fc.constantFrom(...payoutStatuses);
// The rail only knows a payout once it is processing, so it cannot report about it before.
const known = fc.constantFrom(...payoutStatuses.filter((status) => status !== 'pending'));

const columns = [
  'accepted',
  'settled',
  'rejected',
  'returned',
  'voided',
  'withdrawn',
  'released',
] as const;
const contradicts = 'parks: contradiction';
const late = 'parks: paid_after_release';
const table: Readonly<Record<PayoutStatus, readonly string[]>> = {
  pending: ['-', contradicts, contradicts, contradicts, contradicts, '-', '-'],
  processing: [
    'sent',
    'sent → settled',
    'failed',
    'sent → returned',
    'canceled',
    'canceled',
    'failed',
  ],
  sent: ['-', 'settled', 'failed', 'returned', contradicts, '-', 'failed'],
  settled: ['-', '-', contradicts, 'returned', contradicts, '-', '-'],
  failed: ['-', late, '-', contradicts, '-', '-', '-'],
  canceled: ['-', late, '-', contradicts, '-', '-', '-'],
  returned: ['-', '-', contradicts, '-', contradicts, '-', '-'],
};

describe.each(payoutStatuses)('a payout that is %s', (status) => {
  test.each(columns.map((name, column) => [name, table[status][column]] as const))(
    'handles %s from the rail: %s',
    (name: FactName, effect) => {
      expect(shown(effectFrom(status, facts[name]))).toBe(effect);
    },
  );

  test('is parked and posts nothing when the amount or the currency differs', () => {
    for (const fact of mismatches) {
      const { moves, entries, attention, outcomes } = progressFrom(status, fact);
      expect([moves, entries, outcomes]).toEqual([[], [], ['amount_mismatch']]);
      expect(attention?.reason).toBe('amount_mismatch');
    }
  });
});

describe('the reducer', () => {
  test('makes only allowed moves, whatever the rail reports and however often', () => {
    fc.assert(
      fc.property(anyStatus, fc.array(anyFact, { maxLength: 40 }), (start, reported) => {
        const { moves, outcomes } = progressFrom(start, ...reported);
        let status: PayoutStatus = start;
        for (const { status: next } of moves) {
          expect(nextStatuses[status]).toContain(next);
          status = next;
        }
        expect(outcomes).toHaveLength(reported.length);
      }),
      { numRuns: 2_000 },
    );
  });

  test('posts each kind of entry at most once, and only those that belong to the moves', () => {
    fc.assert(
      fc.property(known, fc.array(anyFact, { maxLength: 40 }), (start, reported) => {
        const progress = progressFrom(start, ...reported);
        const kinds = kindsOf(progress);
        const passed = progress.moves.map(({ status }) => status);
        const isBack = passed.includes('returned');
        const isPaid = passed.includes('settled') || (isBack && start !== 'settled');
        expect(kinds.filter((kind) => kind === 'settle')).toHaveLength(isPaid ? 1 : 0);
        expect(kinds.filter((kind) => kind === 'return')).toHaveLength(isBack ? 1 : 0);
        const isReleased = passed.includes('failed') || passed.includes('canceled');
        expect(kinds.filter((kind) => kind === 'release')).toHaveLength(isReleased ? 1 : 0);
        const isLate = progress.outcomes.includes('paid_after_release');
        expect(kinds.filter((kind) => kind === 'late_payment')).toHaveLength(isLate ? 1 : 0);
      }),
      { numRuns: 2_000 },
    );
  });

  test('ignores a repeated fact, at once or later', () => {
    const repeats = fc.array(fc.tuple(fc.nat({ max: 20 }), fc.nat({ max: 20 })), { maxLength: 10 });
    fc.assert(
      fc.property(
        known,
        fc.array(anyFact, { minLength: 1, maxLength: 10 }),
        repeats,
        (start, reported, again) => {
          const more = [...reported];
          for (const [which, after] of again) {
            const from = which % reported.length;
            const fact = reported[from];
            const first = fact === undefined ? 0 : more.indexOf(fact);
            const place = first + 1 + (after % (more.length - first));
            if (fact !== undefined) more.splice(place, 0, fact);
          }
          const first = progressFrom(start, ...reported);
          const { moves, entries, attention } = progressFrom(start, ...more);
          expect({ moves, entries }).toEqual({ moves: first.moves, entries: first.entries });
          // The detail shown to an operator may grow, but the reason for the attention stays the same.
          expect(attention?.reason).toBe(first.attention?.reason);
        },
      ),
      { numRuns: 2_000 },
    );
  });

  test('reaches the same ledger in every order of the facts, or parks in every order', () => {
    const names = fc.array(
      fc.constantFrom<FactName>('accepted', 'settled', 'rejected', 'returned', 'short'),
      { minLength: 1, maxLength: 8 },
    );
    const orders = names.chain((list) => {
      const shuffled = fc.shuffledSubarray(list, {
        minLength: list.length,
        maxLength: list.length,
      });
      return fc.tuple(fc.constant(list), shuffled);
    });
    fc.assert(
      fc.property(
        fc.constantFrom<PayoutStatus>('processing', 'sent'),
        orders,
        (start, [one, other]) => {
          const [first, second] = [one, other].map((order) =>
            progressFrom(start, ...order.map((name) => facts[name])),
          );
          const has = (...some: readonly FactName[]) => some.some((name) => one.includes(name));
          const contradictory =
            (has('rejected') && has('settled', 'returned', 'short')) ||
            (has('returned') && has('short'));
          expect(first?.attention !== null).toBe(contradictory);
          expect(second?.attention !== null).toBe(contradictory);
          if (contradictory) return;
          expect(sumsOf(first?.entries ?? [])).toEqual(sumsOf(second?.entries ?? []));
          expect(first?.moves.at(-1)?.status).toBe(second?.moves.at(-1)?.status);
        },
      ),
      { numRuns: 2_000 },
    );
  });
});

describe('the record', () => {
  const bare = { statusReason: null, railReference: null, returnedMinor: null, settledAt: null };

  test('of an acceptance has its reference', () => {
    const { moves, entries } = progressFrom('processing', facts.accepted);
    expect(moves).toEqual([{ ...bare, status: 'sent', railReference: 'bank-1' }]);
    expect(entries).toEqual([]);
  });

  test('of a settlement that overtakes the acceptance has both moves and one entry', () => {
    const progress = progressFrom('processing', facts.settled, facts.accepted);
    expect(progress.moves).toEqual([
      { ...bare, status: 'sent' },
      { ...bare, status: 'settled' },
    ]);
    expect(kindsOf(progress)).toEqual(['settle']);
    expect(progress.outcomes).toEqual(['settled', 'nothing new']);
  });

  test('of a settlement has the time that the rail reports, and no other move has it', () => {
    const at = '2026-11-21T12:00:00.000Z';
    const { moves } = progressFrom('processing', { ...facts.settled, at });
    expect(moves.map(({ status, settledAt }) => [status, settledAt])).toEqual([
      ['sent', null],
      ['settled', at],
    ]);
  });

  test('of a rejection has its code, and releases the hold', () => {
    const progress = progressFrom('sent', facts.rejected);
    expect(progress.moves).toEqual([{ ...bare, status: 'failed', statusReason: 'AC04' }]);
    expect(kindsOf(progress)).toEqual(['release']);
    expect(sumsOf(progress.entries)).toEqual({ 'held USD': -100_000n, 'available USD': 100_000n });
  });

  test('of a voided key has the reason why it was voided, and releases the hold', () => {
    const voided = (voidIntent: 'canceled' | 'failed') =>
      progressOf({ ...payoutThatIs('processing'), voidIntent }, [facts.voided], usualFactRules);
    const canceled = voided('canceled');
    expect(canceled.moves).toEqual([{ ...bare, status: 'canceled', statusReason: 'canceled' }]);
    const withdrawn = progressFrom('processing', facts.withdrawn);
    expect(withdrawn).toEqual(canceled);
    const failed = voided('failed');
    expect(failed.moves).toEqual([
      { ...bare, status: 'failed', statusReason: 'released_by_operator' },
    ]);
    expect(progressFrom('sent', facts.released)).toEqual(failed);
    for (const progress of [canceled, failed]) {
      expect(kindsOf(progress)).toEqual(['release']);
      expect(progress.outcomes).toEqual([progress.moves[0]?.status]);
    }
  });

  test.each([
    ['processing', ['sent', 'returned'], ['settle', 'return']],
    ['sent', ['returned'], ['settle', 'return']],
    ['settled', ['returned'], ['return']],
  ] as const)(
    'of a return while the payout is %s includes the moves that were skipped',
    (status, path, kinds) => {
      const progress = progressFrom(status, facts.short);
      expect(progress.moves.map((move) => move.status)).toEqual(path);
      expect(progress.moves.at(-1)).toEqual({
        ...bare,
        status: 'returned',
        statusReason: 'AM04',
        returnedMinor: 85_000n,
      });
      // The moves in between have no reason and no amount yet.
      for (const move of progress.moves.slice(0, -1)) expect(move).toEqual({ ...bare, ...move });
      expect(progress.moves.filter(({ returnedMinor }) => returnedMinor !== null)).toHaveLength(1);
      expect(progress.moves.filter(({ statusReason }) => statusReason !== null)).toHaveLength(1);
      expect(kindsOf(progress)).toEqual(kinds);
      expect(progress.outcomes).toEqual(['returned']);
    },
  );

  test('of payments after the release has one late payment, and needs a person', () => {
    const progress = progressFrom('sent', facts.rejected, facts.settled, facts.settled);
    expect(kindsOf(progress)).toEqual(['release', 'late_payment']);
    expect(progress.moves.map(({ status }) => status)).toEqual(['failed']);
    expect(progress.attention).toEqual({
      reason: 'paid_after_release',
      detail: 'The rail settled a payout that is failed.',
    });
    expect(progress.outcomes).toEqual(['failed', 'paid_after_release', 'paid_after_release']);
  });

  test('of two different returns has the first, and the other one needs a person', () => {
    const progress = progressFrom('settled', facts.short, facts.short, facts.returned);
    expect(progress.outcomes).toEqual(['returned', 'nothing new', 'contradiction']);
    expect(progress.moves.map(({ returnedMinor }) => returnedMinor)).toEqual([85_000n]);
    expect(kindsOf(progress)).toEqual(['return']);
  });

  test('of several mismatches names the first as the reason for attention', () => {
    const other = { kind: 'settled', amountMinor: 1n, currency: 'JPY' } as const;
    const { attention, outcomes } = progressFrom('sent', other, facts.settled, facts.rejected);
    expect(outcomes).toEqual(['amount_mismatch', 'amount_mismatch', 'amount_mismatch']);
    expect(attention).toEqual({
      reason: 'amount_mismatch',
      detail:
        'The rail settled 1 JPY; 852.00 EUR was sent.\n' +
        'Then the rail said: settled 852.00 EUR.\n' +
        'Then the rail said: rejected AC04.',
    });
  });

  test.each([
    ['pending', facts.settled, 'The rail settled a payout that was never sent to it.'],
    ['settled', facts.rejected, 'The rail rejected (AC04) a payout that is settled.'],
    [
      'failed',
      facts.returned,
      'The rail returned 852.00 EUR of a payout that is failed. Two people book what ' +
        'comes back of a late payment with corridor payouts late-return.',
    ],
    [
      'returned',
      facts.short,
      'The rail returned 850.00 EUR of a payout; before, it returned 852.00 EUR. Two people ' +
        'book a second return with corridor payouts correct.',
    ],
    [
      'sent',
      { kind: 'returned', amountMinor: 85_201n, ...back },
      'The rail returned 852.01 EUR; 852.00 EUR was sent.',
    ],
  ] as const)(
    'describes what the rail reported about a payout that is %s',
    (status, fact, detail) => {
      expect(progressFrom(status, fact).attention?.detail).toBe(detail);
    },
  );

  test('of no fact is empty', () => {
    expect(progressFrom('sent')).toEqual({
      moves: [],
      entries: [],
      attention: null,
      outcomes: [],
    });
  });
});

describe('while the facts are in dispute', () => {
  const inDispute = fc.constantFrom('amount_mismatch', 'contradiction', 'return_short');

  test('no fact from the rail moves money, in any order', () => {
    fc.assert(
      fc.property(
        fc.constantFrom<PayoutStatus>('processing', 'sent', 'settled'),
        inDispute,
        fc.array(anyFact, { maxLength: 10 }),
        (status, attentionReason, reported) => {
          const disputed = { ...payoutThatIs(status), attentionReason };
          const { moves, entries } = progressOf(disputed, reported, usualFactRules);
          expect(entries).toEqual([]);
          expect(moves.filter((move) => move.status !== 'sent')).toEqual([]);
        },
      ),
    );
  });

  test('an acceptance still moves the payout, because it moves no money', () => {
    const disputed = { ...payoutThatIs('processing'), attentionReason: 'amount_mismatch' } as const;
    const { moves } = progressOf(disputed, [facts.accepted], usualFactRules);
    expect(moves.map(({ status }) => status)).toEqual(['sent']);
  });

  test('a rejection together with a wrong amount is added to the detail', () => {
    const other = { kind: 'settled', amountMinor: 85_199n, currency: 'EUR' } as const;
    const { moves, entries, attention } = progressFrom('sent', other, facts.rejected);
    expect([moves, entries]).toEqual([[], []]);
    expect(attention).toMatchObject({ reason: 'amount_mismatch' });
    expect(attention?.detail).toContain('rejected AC04');
  });
});

describe('after two people have corrected the books', () => {
  test('a settlement that they undid is posted to suspense when it arrives after all', () => {
    const payout = { ...payoutThatIs('returned'), corrected: 'settlement' } as const;
    const { moves, entries, attention } = progressOf(payout, [facts.settled], usualFactRules);
    expect([moves, entries.map(({ kind }) => kind)]).toEqual([[], ['late_payment']]);
    expect(attention?.reason).toBe('paid_after_release');
  });

  test('a return may be a second one, and waits for a person', () => {
    const payout = { ...payoutThatIs('returned'), corrected: 'other' } as const;
    expect(shown(effectOf(payout, facts.returned, usualFactRules))).toBe('parks: contradiction');
  });
});

test('a repeated return of half may be a second one, and waits for a person', () => {
  const half = { kind: 'returned', amountMinor: 42_600n, ...back } as const;
  const payout = { ...payoutThatIs('returned'), returnedMinor: 42_600n };
  expect(shown(effectOf(payout, half, usualFactRules))).toBe('parks: contradiction');
});

test('money in suspense is the first reason that a person sees, whatever else was reported', () => {
  const { attention } = progressFrom('failed', facts.returned, facts.settled);
  expect(attention?.reason).toBe('paid_after_release');
  expect(attention?.detail).toContain('returned');
});

describe('a return below the configured minimum share', () => {
  const returned = (amountMinor: bigint, isConfirmed = false) =>
    ({ kind: 'returned', amountMinor, ...back, isConfirmed }) as const;

  test.each(['processing', 'sent', 'settled'] as const)(
    'waits for a person when the payout is %s',
    (status) => {
      const { entries, attention } = progressFrom(status, returned(76_679n));
      expect(entries).toEqual([]);
      expect(attention).toEqual({
        reason: 'return_short',
        detail: 'The rail returned 766.79 EUR of 852.00 EUR.',
      });
    },
  );

  test('is posted from that share on, and below it once a person has confirmed it', () => {
    // Exactly 90 % of 852.00.
    expect(kindsOf(progressFrom('settled', returned(76_680n)))).toEqual(['return']);
    expect(kindsOf(progressFrom('settled', returned(1n, true)))).toEqual(['return']);
  });
});

test.each(['AM05', 'DUPL', 'DU01', 'DU02', 'DU03', 'DU04', 'DU05'])(
  'a rejection as a duplicate (%s) needs a person and releases nothing',
  (code) => {
    const fact = { kind: 'rejected', code, reason: 'Duplication' } as const;
    for (const status of ['processing', 'sent'] as const) {
      const { moves, entries, attention } = progressFrom(status, fact);
      expect([moves, entries, attention?.reason]).toEqual([[], [], 'contradiction']);
    }
  },
);

test.each([
  { amountMinor: 85_199n, currency: 'EUR' },
  { amountMinor: 85_200n, currency: 'USD' },
])('a rejection of $amountMinor $currency releases nothing: it is of another order', (sum) => {
  for (const code of ['AC04', 'DS02']) {
    for (const status of ['processing', 'sent'] as const) {
      const fact = { kind: 'rejected', code, ...sum } as const;
      const { moves, entries, attention } = progressFrom(status, fact);
      expect([moves, entries, attention?.reason]).toEqual([[], [], 'amount_mismatch']);
      const own = { ...fact, amountMinor: 85_200n, currency: 'EUR' };
      expect(kindsOf(progressFrom(status, own))).toEqual(['release']);
    }
  }
});

test('a void that was never requested needs a person', () => {
  const state = { ...payoutThatIs('processing'), voidIntent: null };
  expect(shown(effectOf(state, facts.voided, usualFactRules))).toBe(contradicts);
});

describe('the table of moves', () => {
  test('matches the architecture page', async () => {
    const page = await readFile(new URL('../../docs/architecture.md', import.meta.url), 'utf8');
    const [, section = ''] = /^## States\n\n(.*?)\n\n/ms.exec(page) ?? [];
    const written = section.split('·').map((move) => {
      const [from, ...to] = [...move.matchAll(/`(\w+)`/g)].map(([, status]) => status);
      return [from, to];
    });
    expect(written).toEqual(Object.entries(nextStatuses).filter(([, next]) => next.length > 0));
  });

  test('has four final statuses, of which none leads back to an open one', () => {
    const final = payoutStatuses.filter((status) => isFinal(status));
    expect(final).toEqual(['settled', 'failed', 'canceled', 'returned']);
    for (const status of final) {
      for (const next of nextStatuses[status]) expect(isFinal(next)).toBe(true);
    }
  });
});

test('every attention reason is described by a sentence', () => {
  for (const sentence of Object.values(attentionReasons)) {
    expect(sentence).toMatch(/^(?:The|A) [a-z].{20,}\.$/);
  }
});

test('the key at the rail is the same at every repeat and different for each payout', () => {
  expect(railKey('po_1')).toBe(railKey('po_1'));
  expect(railKey('po_1')).not.toBe(railKey('po_2'));
});

describe('a second reason to wait for a person', () => {
  const because = (reason: AttentionReason) => ({ reason, detail: `It is ${reason}.` });

  test('is added to the detail of the first, once', () => {
    const both = withAttention(because('contradiction'), because('amount_mismatch'));
    expect(both).toEqual({
      reason: 'contradiction',
      detail: 'It is contradiction.\nIt is amount_mismatch.',
    });
    expect(withAttention(both, because('amount_mismatch'))).toEqual(both);
  });

  test.each([
    ['contradiction', 'paid_after_release', 'paid_after_release'],
    ['settle_by_passed', 'paid_after_release', 'paid_after_release'],
    ['settle_by_passed', 'contradiction', 'contradiction'],
    ['settle_by_passed', 'outcome_unknown', 'settle_by_passed'],
    ['contradiction', 'settle_by_passed', 'contradiction'],
    ['paid_after_release', 'contradiction', 'paid_after_release'],
  ] as const)('of %s and then %s leaves %s', (first, found, expected) => {
    expect(withAttention(because(first), because(found)).reason).toBe(expected);
  });

  test('is the first one where there is none', () => {
    expect(withAttention(null, because('contradiction'))).toEqual(because('contradiction'));
  });
});

test('the detail for a person lists about twenty findings, however many there are', () => {
  let found: ReturnType<typeof withAttention> | null = null;
  for (let n = 0; n < 10_000; n += 1) {
    found = withAttention(found, {
      reason: 'contradiction',
      detail: `The rail returned ${n} of a payout.`,
    });
  }
  expect(found?.detail).toMatch(/^The rail returned 0 of/);
  expect(found?.detail.length).toBeLessThan(2_100);
  // Each fact changes the detail, so that a command begun before is evaluated again.
  expect(found?.detail).toMatch(/\n… and 99\d\d more\.$/);
});
