import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { correctionOf } from '../../src/domain/correction.js';
import { crossMid } from '../../src/domain/fx.js';
import {
  type AcceptedAmounts,
  acceptEntry,
  type Entry,
  fundEntry,
  latePaymentEntry,
  ledgerAccounts,
  type PostedEntry,
  releaseEntry,
  returnEntry,
  settleEntry,
  sumOn,
} from '../../src/domain/ledger.js';
import type { Correction } from '../../src/domain/operator.js';
import { isRefusal } from '../../src/domain/refusal.js';
import { referenceSource } from '../../src/rates/reference.js';
import { amounts } from '../fixtures/acceptedAmounts.js';
import { price } from '../fixtures/corridors.js';

const post = (...entries: readonly Entry[]): readonly PostedEntry[] =>
  entries.map((entry, index) => ({ ...entry, id: BigInt(index + 1) }));

const paidLate = post(acceptEntry(amounts), releaseEntry(amounts), latePaymentEntry(amounts));
const settled = post(acceptEntry(amounts), settleEntry(amounts));
const overpaid = post(acceptEntry(amounts), settleEntry(amounts), {
  kind: 'correction',
  postings: [
    { account: 'losses', currency: 'EUR', amountMinor: -1n },
    { account: 'suspense', currency: 'EUR', amountMinor: 1n },
  ],
});

/** The postings of a correction as text, or the reason for its refusal. */
function shown(correction: Correction, posted: readonly PostedEntry[]) {
  const entry = correctionOf(correction, amounts, posted);
  if (typeof entry === 'string') return entry;
  const postings = entry.postings.map((p) => `${p.account} ${p.currency} ${p.amountMinor}`);
  return [entry.kind, ...postings];
}

function postingTo(
  name: `${'available' | 'held' | 'rail_settlement' | 'suspense' | 'losses'}:${'EUR' | 'USD'}`,
) {
  const account = ledgerAccounts.find((each) => name.startsWith(`${each}:`)) ?? 'losses';
  return { account, currency: name.slice(-3), amountMinor: '1' };
}

const lateReturn = (amountMinor: string): Correction => ({ kind: 'lateReturn', amountMinor });
const clear = (charge: 'customer' | 'house'): Correction => ({ kind: 'clearSuspense', charge });
const reverse = (entry: string): Correction => ({ kind: 'reverse', entry });

describe('a correction posts', () => {
  test('the amount that came back from a late payment', () => {
    expect(shown(lateReturn('85201'), paidLate)).toEqual([
      'late_return',
      'rail_settlement EUR -85201',
      'suspense EUR 85201',
    ]);
  });

  test('a loss, when the house pays for the amount that did not come back', () => {
    const back = correctionOf(lateReturn('85001'), amounts, paidLate);
    if (typeof back === 'string') throw new Error(back);
    expect(shown(clear('house'), post(...paidLate, back))).toEqual([
      'suspense_clear',
      'losses EUR -200',
      'suspense EUR 200',
    ]);
  });

  test('a settlement from the available balance, when the customer pays for it', () => {
    expect(shown(clear('customer'), paidLate)).toEqual([
      'suspense_clear',
      'available USD -99570',
      'fx_position USD 99570',
      'available USD -430',
      'fee_revenue USD 430',
      'fx_position EUR -85201',
      'suspense EUR 85201',
      'fx_position EUR -428',
      'spread_revenue EUR 428',
      'fx_position EUR -1',
      'rounding EUR 1',
    ]);
  });

  test('the opposite of an entry, and restores the hold of a settlement', () => {
    const entry = correctionOf(reverse('2'), amounts, settled);
    expect(entry).toMatchObject({ kind: 'correction', reverses: 2n });
    if (typeof entry === 'string') throw new Error(entry);
    const all = [...settled, entry];
    for (const account of ['held', 'available', 'fee_revenue', 'fx_position'] as const) {
      expect(sumOn(all, account, 'USD'), account).toBe(0n);
    }
    for (const account of [
      'rail_settlement',
      'fx_position',
      'spread_revenue',
      'rounding',
    ] as const) {
      expect(sumOn(all, account, 'EUR'), account).toBe(0n);
    }
  });

  test('any postings that two people agree on', () => {
    const postings = [
      { account: 'rail_settlement', currency: 'EUR', amountMinor: '-150' },
      { account: 'return_costs', currency: 'EUR', amountMinor: '150' },
    ] as const;
    expect(shown({ kind: 'book', postings }, settled)).toEqual([
      'correction',
      'rail_settlement EUR -150',
      'return_costs EUR 150',
    ]);
  });
});

describe('a correction is refused', () => {
  test.each<[string, Correction, readonly PostedEntry[], string]>([
    ['that takes more than is in suspense', lateReturn('85202'), paidLate, 'Only 852.01 EUR is in'],
    ['of a payout without suspense', lateReturn('1'), settled, 'Only 0.00 EUR'],
    ['of a payout with too much in suspense', lateReturn('1'), overpaid, 'Only 0.00 EUR is in'],
    ['with nothing to write off', clear('house'), settled, 'nothing to book'],
    ['with nothing to charge', clear('customer'), settled, 'Only 0.00 EUR'],
    ['without postings', { kind: 'book', postings: [] }, settled, 'nothing to book'],
    ...(['available:EUR', 'held:EUR', 'rail_settlement:USD', 'suspense:USD'] as const).map(
      (name): [string, Correction, readonly PostedEntry[], string] => [
        `that posts to ${name}`,
        { kind: 'book', postings: [postingTo(name)] },
        settled,
        `${name.split(':')[0]} has to be in ${name.endsWith('EUR') ? 'USD' : 'EUR'}`,
      ],
    ),
    [
      'of more postings than an entry has room for',
      { kind: 'book', postings: Array.from({ length: 17 }, () => postingTo('losses:EUR')) },
      settled,
      'at most 16 postings',
    ],
    [
      'that names an account twice',
      {
        kind: 'book',
        postings: [postingTo('losses:EUR'), postingTo('losses:USD'), postingTo('losses:EUR')],
      },
      settled,
      'losses in EUR is named twice',
    ],
    ['of a hold', reverse('1'), settled, '1 is not an entry'],
    ['of no entry', reverse('7'), settled, '7 is not an entry'],
    ['that reverses an entry without an id', reverse(''), settled, ' is not an entry'],
  ])('%s', (_which, correction, posted, reason) => {
    expect(shown(correction, posted)).toContain(reason);
  });

  test('when it charges a customer for a payment that has come back in part', () => {
    const back = correctionOf(lateReturn('1'), amounts, paidLate);
    if (typeof back === 'string') throw new Error(back);
    expect(shown(clear('customer'), post(...paidLate, back))).toContain('Only 852.00 EUR');
  });

  test('when it reverses a reversal', () => {
    const reversal = correctionOf(reverse('2'), amounts, settled);
    if (typeof reversal === 'string') throw new Error(reversal);
    const id = String(settled.length + 1);
    expect(shown(reverse(id), post(...settled, reversal))).toContain(`${id} is not an entry`);
  });

  test('when it reverses an entry twice, or a late payment that is cleared', () => {
    const reversal = correctionOf(reverse('2'), amounts, settled);
    if (typeof reversal === 'string') throw new Error(reversal);
    expect(shown(reverse('2'), post(...settled, reversal))).toContain('is not an entry');
    expect(shown(reverse('3'), post(...settled, reversal))).toContain('is not an entry');
    const cleared = correctionOf(clear('house'), amounts, paidLate);
    if (typeof cleared === 'string') throw new Error(cleared);
    expect(shown(reverse('3'), post(...paidLate, cleared))).toContain('Only 0.00 EUR');
    // In the opposite order it can be undone step by step.
    const undone = correctionOf(reverse('4'), amounts, post(...paidLate, cleared));
    if (typeof undone === 'string') throw new Error(undone);
    const again = post(...paidLate, cleared, undone);
    expect(sumOn(again, 'suspense', 'EUR')).toBe(-85_201n);
    expect(shown(reverse('3'), again)).toContain('correction');
  });
});

const { perEuro } = await referenceSource.fetch();
const currencies = ['USD', 'EUR', 'JPY', 'KWD', 'IDR'] as const;

/** The frozen amounts of an arbitrary payout. */
const anyFrozen = fc
  .record({
    sourceCurrency: fc.constantFrom(...currencies),
    destinationCurrency: fc.constantFrom(...currencies),
    amount: fc.bigInt(10_000n, 100_000_000n),
  })
  .map((request): AcceptedAmounts | undefined => {
    const { sourceCurrency: source, destinationCurrency: destination } = request;
    const mid = crossMid(perEuro.get(source) ?? '', perEuro.get(destination) ?? '');
    const priced = price({ ...request, fixedSide: 'source', mid });
    return isRefusal(priced) ? undefined : { ...request, ...priced };
  });

const anyCorrection = fc.oneof(
  fc.record({
    kind: fc.constant('lateReturn' as const),
    // Shares of the paid amount in hundredths, from nothing to more than all of it.
    hundredths: fc.bigInt(0n, 120n),
  }),
  fc.record({
    kind: fc.constant('clearSuspense' as const),
    charge: fc.constantFrom('customer' as const, 'house' as const),
  }),
  fc.record({ kind: fc.constant('reverse' as const), entry: fc.integer({ min: 0, max: 12 }) }),
);

test('after any corrections every currency sums to zero, and suspense is never overpaid', () => {
  const seen = new Map<string, number>();
  fc.assert(
    fc.property(
      anyFrozen,
      fc.constantFrom('settled', 'returned', 'paid late'),
      fc.array(anyCorrection, { maxLength: 10 }),
      (amounts, state, corrections) => {
        fc.pre(amounts !== undefined);
        if (amounts === undefined) return;
        const { sourceCurrency, destinationCurrency, receiveMinor } = amounts;
        const settlement = [acceptEntry(amounts), settleEntry(amounts)];
        const entries: Entry[] = [
          fundEntry(sourceCurrency, amounts.sourceMinor),
          ...(state === 'paid late'
            ? [acceptEntry(amounts), releaseEntry(amounts), latePaymentEntry(amounts)]
            : settlement),
          ...(state === 'returned' ? [returnEntry(amounts, receiveMinor)] : []),
        ];
        for (const { kind, ...rest } of corrections) {
          const correction: Correction =
            'hundredths' in rest
              ? lateReturn(String((receiveMinor * rest.hundredths) / 100n))
              : 'charge' in rest
                ? clear(rest.charge)
                : reverse(String(rest.entry));
          const entry = correctionOf(correction, amounts, post(...entries));
          seen.set(typeof entry === 'string' ? 'refused' : kind, (seen.get(kind) ?? 0) + 1);
          if (typeof entry !== 'string') entries.push(entry);
          for (const currency of [sourceCurrency, destinationCurrency]) {
            const last = entries.at(-1)?.postings.filter((each) => each.currency === currency);
            expect(last?.reduce((sum, each) => sum + each.amountMinor, 0n)).toBe(0n);
          }
          expect(sumOn(entries, 'suspense', destinationCurrency)).toBeLessThanOrEqual(0n);
        }
        // Whatever happened, the house can clear suspense completely.
        const last = correctionOf(clear('house'), amounts, post(...entries));
        if (typeof last !== 'string') entries.push(last);
        expect(sumOn(entries, 'suspense', destinationCurrency)).toBe(0n);
      },
    ),
    { numRuns: 1_000 },
  );
  expect([...seen.keys()].sort()).toEqual(['clearSuspense', 'lateReturn', 'refused', 'reverse']);
});
