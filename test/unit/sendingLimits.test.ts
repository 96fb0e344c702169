import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Funds, fundInOrder } from '../../src/domain/acceptance.js';
import { parseRate } from '../../src/domain/fx.js';
import { isRefusal } from '../../src/domain/refusal.js';
import { limitUsesOf, refuseNewPayee, refuseOverLimit } from '../../src/domain/sendingLimits.js';

const unused = { destination: null, uses: {} };
const uses = { '2026-11-30': '70000', '2026-12-01': '20000', '2026-12-31': '5' };
const limits = {
  ...{ payoutMinor: null, dayMinor: 100_000n, monthMinor: 500_000n },
  ...{ destination: null, uses },
};
const at = (time: string) => limitUsesOf([limits], new Date(time));
const [jpy, kwd] = ['JPY', 'KWD'].map((sourceCurrency) => ({
  sourceCurrency,
  destinationCurrency: 'EUR',
  sourceMinor: 9_000n,
}));
const nothing = { ofCurrency: 0n, ofCorridor: 0n };

describe('the used amount of a limit', () => {
  test('resets at midnight UTC for a daily limit', () => {
    const day = (time: string) => at(time).find(({ period }) => period === 'day');
    expect(day('2026-12-01T00:00:00.000Z')).toEqual({
      period: 'day',
      destination: null,
      limitMinor: 100_000n,
      usedMinor: 20_005n,
      resetsAt: new Date('2026-12-02T00:00:00.000Z'),
    });
    // Uses of tomorrow, left by a clock that was set back, count today too.
    expect(day('2026-12-30T23:59:59.999Z')?.usedMinor).toBe(5n);
    expect(day('2027-01-01T00:00:00.000Z')).toMatchObject({ usedMinor: 0n });
    // The last hour of a day in another time zone belongs to the next UTC day.
    expect(day('2026-12-31T23:59:59.999-05:00')).toMatchObject({ usedMinor: 0n });
  });

  test('resets at the end of the month in UTC for a monthly limit, also at the end of a year', () => {
    const month = (time: string) => at(time).find(({ period }) => period === 'month');
    expect(month('2026-11-30T23:59:59.999Z')).toMatchObject({
      usedMinor: 90_005n,
      resetsAt: new Date('2026-12-01T00:00:00.000Z'),
    });
    expect(month('2026-12-01T00:00:00.000Z')).toMatchObject({
      usedMinor: 20_005n,
      resetsAt: new Date('2027-01-01T00:00:00.000Z'),
    });
    expect(month('2028-02-29T12:00:00.000Z')).toMatchObject({
      usedMinor: 0n,
      resetsAt: new Date('2028-03-01T00:00:00.000Z'),
    });
  });

  test('is always zero for a limit per payout', () => {
    const each = { ...limits, payoutMinor: 5n, dayMinor: null, monthMinor: null };
    expect(limitUsesOf([each], new Date('2026-12-01'))).toEqual([
      { period: 'payout', destination: null, limitMinor: 5n, usedMinor: 0n, resetsAt: null },
    ]);
  });
});

describe('the refusal of a payout over a limit', () => {
  const now = new Date('2026-12-01T10:00:00.000Z');
  const usd = (sourceMinor: bigint, destinationCurrency = 'EUR') => ({
    sourceCurrency: 'USD',
    destinationCurrency,
    sourceMinor,
  });

  test('names the limit, what is used and left, and when it resets', () => {
    expect(
      refuseOverLimit(
        limitUsesOf([limits], now),
        usd(70_000n),
        { ofCurrency: 10_000n, ofCorridor: 5n },
        'amount',
      ),
    ).toEqual({
      refused: true,
      code: 'limit_exceeded',
      param: 'amount',
      expected: 'at most 699.95 USD, the remainder of the limit of 1000.00 USD a day',
      received: '700.00 USD',
      detail:
        'The limit is 1000.00 USD a day, of which 300.05 USD is used and 699.95 USD is left ' +
        'until it resets at 2026-12-02T00:00:00.000Z; this payout needs 700.00 USD.',
      hint: 'Send less, or wait until the limit resets.',
    });
  });

  test('names the limit that lasts longest', () => {
    const all = { ...unused, payoutMinor: 60_000n, dayMinor: 60_000n, monthMinor: 60_000n };
    const refusalOf = (used: string, minor: bigint) =>
      refuseOverLimit(
        limitUsesOf([{ ...all, uses: { '2026-12-01': used } }], now),
        usd(minor),
        nothing,
        'quote',
      );
    expect(refusalOf('0', 60_000n)).toBeUndefined();
    expect(refusalOf('0', 60_001n)).toMatchObject({
      expected: 'at most 600.00 USD a payout',
      detail: 'The limit is 600.00 USD a payout; this payout needs 600.01 USD.',
      hint: 'Send less.',
    });
    expect(refusalOf('1', 60_000n)).toMatchObject({ expected: expect.stringContaining('a month') });
  });

  test.each([
    [60_001n, 'The limit is 600.00 USD a payout; this payout needs 600.01 USD.'],
    [20_000n, 'The limit is 1000.00 USD a day, of which 999.00 USD is used and 1.00 USD is left '],
  ])('of %d cents names the largest amount that fits every limit', (minor, explained) => {
    const all = { ...unused, payoutMinor: 60_000n, dayMinor: 100_000n, monthMinor: 500_000n };
    const limitUses = limitUsesOf([{ ...all, uses: { '2026-12-01': '99900' } }], now);
    expect(refuseOverLimit(limitUses, usd(minor), nothing, 'amount')).toMatchObject({
      expected: 'at most 1.00 USD, the remainder of the limit of 1000.00 USD a day',
      detail: expect.stringContaining(explained),
    });
    expect(refuseOverLimit(limitUses, usd(100n), nothing, 'amount')).toBeUndefined();
  });

  test('names the month when the day is used up as well, and the amount that fits both', () => {
    const days = { '2026-12-01': '390000', '2026-12-02': '99900' };
    const limitUses = limitUsesOf(
      [{ ...limits, uses: days }],
      new Date('2026-12-02T10:00:00.000Z'),
    );
    expect(refuseOverLimit(limitUses, usd(20_000n), nothing, 'amount')).toMatchObject({
      expected: expect.stringContaining('at most 1.00 USD, '),
      detail: expect.stringContaining('101.00 USD is left until it resets at 2027-01-01T'),
    });
  });

  test('reports that nothing is left when the limit is now lower than what was used', () => {
    const lower = { ...limits, dayMinor: 1_000n, monthMinor: null };
    expect(refuseOverLimit(limitUsesOf([lower], now), usd(1n), nothing, 'amount')).toMatchObject({
      expected: 'at most 0.00 USD, the remainder of the limit of 10.00 USD a day',
    });
  });

  test('of one corridor is exact to the last unit, and does not affect other corridors', () => {
    const to = { ...limits, destination: 'EUR', monthMinor: null, dayMinor: 30_000n };
    const limitUses = limitUsesOf([limits, to], now);
    const refused = (minor: bigint, destination: string, taken = nothing) =>
      refuseOverLimit(limitUses, usd(minor, destination), taken, 'amount');
    expect(refused(9_995n, 'EUR')).toBeUndefined();
    expect(refused(9_996n, 'EUR')).toMatchObject({
      expected: 'at most 99.95 USD, the remainder of the limit of 300.00 USD a day to EUR',
      detail: expect.stringContaining(
        'The limit is 300.00 USD a day to EUR, of which 200.05 USD is used and 99.95 USD is left',
      ),
    });
    expect(refused(9_000n, 'EUR', { ofCurrency: 996n, ofCorridor: 995n })).toBeUndefined();
    expect(refused(9_000n, 'EUR', { ofCurrency: 996n, ofCorridor: 996n })).toBeDefined();
    expect(refused(79_995n, 'JPY')).toBeUndefined();
    expect(refused(79_996n, 'JPY')).toMatchObject({ expected: expect.stringMatching(/a day$/) });
  });

  test('names the monthly limit of its corridor before the daily limit of its currency', () => {
    const to = { ...limits, destination: 'EUR', monthMinor: 90_005n, dayMinor: null };
    const month = limitUsesOf([{ ...limits, monthMinor: null }, to], now);
    expect(refuseOverLimit(month, usd(80_000n), nothing, 'amount')).toMatchObject({
      detail: expect.stringMatching(/a month to EUR, .* resets at 2027-01-01T/),
    });
  });

  test('prints amounts with the decimals of their currency', () => {
    const each = { ...unused, payoutMinor: 8_000n, dayMinor: null, monthMinor: null };
    for (const [payout, received] of [
      [jpy, '9000 JPY'],
      [kwd, '9.000 KWD'],
    ] as const) {
      if (payout === undefined) throw new Error('The payout is undefined.');
      const refusal = refuseOverLimit(limitUsesOf([each], now), payout, nothing, 'amount');
      expect(refusal).toMatchObject({ received });
    }
  });
});

test('payouts of one decision share what a limit has left', () => {
  const limitUses = limitUsesOf([limits], new Date('2026-12-01T10:00:00.000Z'));
  const results = fundInOrder([50_000n, 40_000n, 29_000n].map(payoutOf), {
    state: 'open',
    available: new Map([['USD', 1_000_000n]]),
    limitUses: new Map([['USD', limitUses]]),
    payeeDelays: [],
  });
  expect(results.map((each) => (isRefusal(each) ? each.received : 'accepted'))).toEqual([
    'accepted',
    '400.00 USD',
    'accepted',
  ]);
});

test('payouts of one decision share what the limit of their corridor has left', () => {
  const to = { ...limits, destination: 'EUR', dayMinor: 60_005n, monthMinor: null };
  const payouts = [20_000n, 30_000n, 20_000n, 20_000n].map(payoutOf);
  const results = fundInOrder(
    payouts.map((payout, index) =>
      index === 1
        ? { ...payout, priced: { ...payout.priced, destinationCurrency: 'JPY' } }
        : payout,
    ),
    {
      state: 'open',
      available: new Map([['USD', 1_000_000n]]),
      limitUses: new Map([['USD', limitUsesOf([limits, to], new Date('2026-12-01T10:00:00Z'))]]),
      payeeDelays: [],
    },
  );
  expect(results.map((each) => (isRefusal(each) ? each.expected : 'accepted'))).toEqual([
    'accepted',
    'accepted',
    'accepted',
    'at most 0.00 USD, the remainder of the limit of 600.05 USD a day to EUR',
  ]);
});

test('no more is ever accepted than the limits and the balance have left', () => {
  const minor = fc.bigInt({ min: 1n, max: 1_000n });
  const limit = fc.option(fc.bigInt({ min: 1n, max: 3_000n }));
  const limitRules = fc.record({ payoutMinor: limit, dayMinor: limit, monthMinor: limit });
  const use = fc.bigInt({ min: 0n, max: 2_000n }).map(String);
  const requestedAmounts = fc.array(minor, { maxLength: 12 });
  fc.assert(
    fc.property(
      limitRules,
      use,
      use,
      minor,
      requestedAmounts,
      (rules, today, before, balance, amounts) => {
        const used = { '2026-11-23': today, '2026-11-22': before };
        const all = [{ ...unused, ...rules, uses: used }];
        const limitUses = limitUsesOf(all, new Date('2026-11-23T12:00:00Z'));
        const funds: Funds = {
          state: 'open',
          available: new Map([['USD', balance]]),
          limitUses: new Map([['USD', limitUses]]),
          payeeDelays: [],
        };
        const results = fundInOrder(amounts.map(payoutOf), funds);
        const taken = results.map((result) => (isRefusal(result) ? 0n : result.sourceMinor));
        const sum = taken.reduce((all, each) => all + each, 0n);
        const [day, month] = [BigInt(today), BigInt(today) + BigInt(before)];
        const fits = (bound: bigint | null, value: bigint) => bound === null || value <= bound;
        expect(sum <= balance).toBe(true);
        expect(taken.every((each) => fits(rules.payoutMinor, each))).toBe(true);
        if (sum > 0n) expect(fits(rules.dayMinor, day + sum)).toBe(true);
        if (sum > 0n) expect(fits(rules.monthMinor, month + sum)).toBe(true);
        // Nothing is refused that would fit: the remainder is too small for each refused item.
        for (const [index, result] of results.entries()) {
          if (!isRefusal(result)) continue;
          const before = taken.slice(0, index).reduce((all, each) => all + each, 0n);
          const amount = amounts[index] ?? 0n;
          const isCovered =
            before + amount <= balance &&
            fits(rules.payoutMinor, amount) &&
            fits(rules.dayMinor, day + before + amount) &&
            fits(rules.monthMinor, month + before + amount);
          expect(isCovered).toBe(false);
        }
      },
    ),
  );
});

/** A payout of this many cents to Germany. */
function payoutOf(sourceMinor: bigint, index: number) {
  const terms = { sourceCurrency: 'USD', destinationCurrency: 'EUR', fixedSide: 'source' } as const;
  const rate = parseRate('0.86');
  const amounts = { sourceMinor, feeMinor: 0n, netMinor: sourceMinor, receiveMinor: 1n };
  return {
    id: `po_${index}`,
    request: {
      ...{ ...terms, quoteId: null, beneficiaryId: 'bnf_1', amount: sourceMinor },
      ...{ batchId: null, ageMs: 0 },
    },
    facts: { beneficiary: undefined },
    priced: { ...terms, ...amounts, amount: sourceMinor, midValueMinor: 1n, rate, mid: rate },
  };
}

describe('new beneficiary details', () => {
  const rule = { currency: 'USD', aboveMinor: 10_000n, hours: 24 };
  const dayMs = 24n * 60n * 60n * 1000n;
  const since = new Date('2026-11-23T08:00:00.000Z');
  const refusedAt = (sourceMinor: bigint, ageMs: bigint, sourceCurrency = 'USD') =>
    refuseNewPayee([rule], { sourceCurrency, sourceMinor }, { since, ageMs }, 'amount');

  test('can receive a larger amount from the moment they are old enough', () => {
    expect(refusedAt(10_001n, dayMs - 1n)).toMatchObject({
      code: 'limit_exceeded',
      expected: 'at most 100.00 USD until 2026-11-24T08:00:00.000Z',
      received: '100.01 USD',
    });
    expect(refusedAt(10_001n, dayMs)).toBeUndefined();
  });

  test('can receive exactly the limit, and any amount in a currency without a rule', () => {
    expect(refusedAt(10_000n, 0n)).toBeUndefined();
    expect(refusedAt(10_001n, 0n, 'EUR')).toBeUndefined();
    // Written by a transaction that is younger than the deciding one.
    expect(refusedAt(10_001n, -5n)).toBeDefined();
  });
});
