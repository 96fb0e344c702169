import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  corridorCurrencies,
  type FeeSchedule,
  feeFor,
  grossFor,
} from '../../src/domain/corridor.js';
import { convertFloor, crossMid, formatRate, parseRate } from '../../src/domain/fx.js';
import { isCurrency } from '../../src/domain/money.js';
import {
  type FixedSide,
  type Price,
  type PriceRequest,
  price as priceOn,
} from '../../src/domain/quote.js';
import { isRefusal, type Refusal } from '../../src/domain/refusal.js';
import { referenceSource } from '../../src/rates/reference.js';
import { findCorridor, price } from '../fixtures/corridors.js';

const { perEuro } = await referenceSource.fetch();

function referenceMid(source: string, destination: string) {
  return crossMid(perEuro.get(source) ?? '', perEuro.get(destination) ?? '');
}

function corridorOf(source: string, destination: string) {
  const corridor = findCorridor(source, destination);
  if (corridor === undefined) throw new Error(`No corridor from ${source} to ${destination}`);
  return corridor;
}

function priced(request: Omit<PriceRequest, 'corridor'>): Price {
  const result = price(request);
  if (isRefusal(result)) throw new Error(JSON.stringify(result));
  return result;
}

function refused(request: Omit<PriceRequest, 'corridor'>): Refusal {
  const result = price(request);
  if (!isRefusal(result)) throw new Error('The request was priced');
  return result;
}

/** The limit named by a refusal: the first integer in its `expected`. */
function limitIn(refusal: Refusal): bigint {
  const [digits] = /\d+/.exec(refusal.expected ?? '') ?? [];
  if (digits === undefined) throw new Error('The refusal names no limit');
  return BigInt(digits);
}

const code = fc.constantFrom(...corridorCurrencies());
const side = fc.constantFrom<FixedSide>('source', 'destination');
const pair = fc.record({ sourceCurrency: code, destinationCurrency: code });
const corridors = pair.map((ends) => ({
  ...ends,
  mid: referenceMid(ends.sourceCurrency, ends.destinationCurrency),
}));

describe('fees', () => {
  const schedule: fc.Arbitrary<FeeSchedule> = fc.record({
    fixedMinor: fc.bigInt({ min: 0n, max: 10n ** 6n }),
    minimumMinor: fc.bigInt({ min: 0n, max: 10n ** 7n }),
    basisPoints: fc.integer({ min: 0, max: 9_999 }),
  });
  const amount = fc.bigInt({ min: 0n, max: 10n ** 14n });

  test.each([
    [10_000n, 100n],
    [17_500n, 100n],
    [17_501n, 101n],
    [100_000n, 430n],
    [1n, 100n],
  ])('of %s US cents is %s', (amountMinor, expected) => {
    expect(feeFor(amountMinor, corridorOf('USD', 'EUR').fee)).toBe(expected);
  });

  test('never fall when the amount rises', () => {
    fc.assert(
      fc.property(amount, amount, schedule, (a, b, terms) => {
        const [smaller, max] = a < b ? [a, b] : [b, a];
        expect(feeFor(smaller, terms)).toBeLessThanOrEqual(feeFor(max, terms));
      }),
    );
  });

  test('are rounded up by less than one minor unit, and are never below the minimum', () => {
    fc.assert(
      fc.property(amount, schedule, (amountMinor, terms) => {
        const fee = feeFor(amountMinor, terms);
        const exactTimes10000 =
          terms.fixedMinor * 10_000n + amountMinor * BigInt(terms.basisPoints);
        expect(fee).toBeGreaterThanOrEqual(terms.minimumMinor);
        expect(fee * 10_000n).toBeGreaterThanOrEqual(exactTimes10000);
        if (fee > terms.minimumMinor) expect((fee - 1n) * 10_000n).toBeLessThan(exactTimes10000);
      }),
    );
  });

  test('can be inverted: the gross amount leaves the net amount and one less does not', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 1n, max: 10n ** 12n }), schedule, (net, terms) => {
        const gross = grossFor(net, terms);
        expect(gross - feeFor(gross, terms)).toBeGreaterThanOrEqual(net);
        expect(gross - 1n - feeFor(gross - 1n, terms)).toBeLessThan(net);
      }),
      { numRuns: 1_000 },
    );
  });
});

describe('corridors', () => {
  test('are every pair of 41 ISO currencies, with terms that make sense', () => {
    const codes = corridorCurrencies();
    expect(new Set(codes).size).toBe(41);
    for (const source of codes) {
      expect(isCurrency(source)).toBe(true);
      for (const destination of codes) {
        const { fee, maximumMinor, spreadBasisPoints } = corridorOf(source, destination);
        expect(spreadBasisPoints === 0).toBe(source === destination);
        expect(spreadBasisPoints).toBeLessThanOrEqual(200);
        expect(fee.minimumMinor).toBeGreaterThan(fee.fixedMinor);
        // The API accepts amounts up to 10^14 on either side.
        expect(maximumMinor).toBeLessThanOrEqual(10n ** 14n);
        const arriving = convertFloor(
          maximumMinor,
          source,
          destination,
          referenceMid(source, destination),
        );
        expect(arriving).toBeLessThanOrEqual(10n ** 14n);
      }
    }
  });

  test('have a minimum fee of about one US dollar and a maximum of about a million, in any currency', () => {
    for (const source of corridorCurrencies()) {
      const { fee, maximumMinor } = corridorOf(source, 'USD');
      const toCents = (minor: bigint) =>
        convertFloor(minor, source, 'USD', referenceMid(source, 'USD'));
      expect(toCents(fee.minimumMinor)).toBeGreaterThan(80n);
      expect(toCents(fee.minimumMinor)).toBeLessThan(120n);
      expect(toCents(maximumMinor)).toBeGreaterThan(80_000_000n);
      expect(toCents(maximumMinor)).toBeLessThan(120_000_000n);
    }
  });

  test('have the wider spread of their two currencies, in both directions', () => {
    expect(corridorOf('USD', 'EUR').spreadBasisPoints).toBe(50);
    expect(corridorOf('USD', 'TRY').spreadBasisPoints).toBe(150);
    expect(corridorOf('TRY', 'USD').spreadBasisPoints).toBe(150);
  });

  test('all use the only rail', () => {
    expect(corridorOf('USD', 'EUR').rail).toBe('sandbox');
  });

  test('do not exist for other currencies', () => {
    expect(findCorridor('USD', 'RUB')).toBeUndefined();
    expect(findCorridor('toString', 'USD')).toBeUndefined();
  });
});

describe('a price', () => {
  test('of 1,000.00 USD in EUR at a mid rate of 0.86', () => {
    const request = {
      sourceCurrency: 'USD',
      destinationCurrency: 'EUR',
      amount: 100_000n,
      fixedSide: 'source',
      mid: parseRate('0.86'),
    } as const;
    const result = priced(request);
    expect(formatRate(result.rate)).toBe('0.8557');
    expect(formatRate(result.mid)).toBe('0.86');
    expect(result).toMatchObject({
      sourceMinor: 100_000n,
      feeMinor: 430n,
      netMinor: 99_570n,
      receiveMinor: 85_202n,
      midValueMinor: 85_630n,
    });
  });

  test('adds up: fee and net are the source amount, and mid is worth at least as much as the rate', () => {
    fc.assert(
      fc.property(
        corridors,
        side,
        fc.double({ min: 0, max: 1, noNaN: true }),
        (ends, fixedSide, share) => {
          const { sourceCurrency, destinationCurrency, mid } = ends;
          const { fee, maximumMinor } = corridorOf(sourceCurrency, destinationCurrency);
          const largest = limitIn(refused({ ...ends, fixedSide, amount: 10n ** 15n }));
          const smallest = limitIn(refused({ ...ends, fixedSide, amount: 0n }));
          const amount =
            smallest + ((largest - smallest) * BigInt(Math.round(share * 1e9))) / 10n ** 9n;
          const result = priced({ ...ends, fixedSide, amount });
          const { sourceMinor, feeMinor, netMinor, receiveMinor, midValueMinor, rate } = result;

          expect(feeMinor + netMinor).toBe(sourceMinor);
          expect(feeMinor).toBe(feeFor(sourceMinor, fee));
          expect(netMinor).toBeGreaterThan(0n);
          expect(receiveMinor).toBeGreaterThan(0n);
          expect(sourceMinor).toBeLessThanOrEqual(maximumMinor);
          const converted = convertFloor(netMinor, sourceCurrency, destinationCurrency, rate);
          expect(midValueMinor).toBe(
            convertFloor(netMinor, sourceCurrency, destinationCurrency, mid),
          );
          expect(midValueMinor).toBeGreaterThanOrEqual(converted);
          if (fixedSide === 'source') {
            expect([sourceMinor, receiveMinor]).toEqual([amount, converted]);
          } else {
            expect(receiveMinor).toBe(amount);
            expect(converted).toBeGreaterThanOrEqual(amount);
          }
        },
      ),
      { numRuns: 1_000 },
    );
  });

  test('with the destination fixed takes the smallest source that reaches it', () => {
    fc.assert(
      fc.property(corridors, fc.bigInt({ min: 1n, max: 10n ** 7n }), (ends, requested) => {
        const { sourceCurrency, destinationCurrency } = ends;
        const limit = limitIn(refused({ ...ends, fixedSide: 'destination', amount: 10n ** 15n }));
        fc.pre(requested <= limit);
        const { sourceMinor, rate } = priced({
          ...ends,
          fixedSide: 'destination',
          amount: requested,
        });
        const { fee } = corridorOf(sourceCurrency, destinationCurrency);
        const reached = (source: bigint) => {
          const net = source - feeFor(source, fee);
          return net > 0n ? convertFloor(net, sourceCurrency, destinationCurrency, rate) : 0n;
        };
        expect(reached(sourceMinor)).toBeGreaterThanOrEqual(requested);
        expect(reached(sourceMinor - 1n)).toBeLessThan(requested);
      }),
      { numRuns: 1_000 },
    );
  });

  test('never gains from converting there and back, with or without spread and fee', () => {
    const way = (from: string, to: string, amount: bigint, isFree: boolean) => {
      const corridor = corridorOf(from, to);
      const fee = { fixedMinor: 0n, basisPoints: 0, minimumMinor: 0n };
      const free = { ...corridor, fee, spreadBasisPoints: 0, maximumMinor: 10n ** 14n };
      const result = priceOn({
        ...{ sourceCurrency: from, destinationCurrency: to, amount, fixedSide: 'source' },
        ...{ mid: referenceMid(from, to), corridor: isFree ? free : corridor },
      });
      // An amount too small or too large to be sent gains nothing either.
      return isRefusal(result) ? 0n : result.receiveMinor;
    };
    let returned = 0;
    fc.assert(
      fc.property(
        pair,
        fc.bigInt({ min: 1n, max: 10n ** 10n }),
        fc.boolean(),
        ({ sourceCurrency, destinationCurrency }, amount, isFree) => {
          const there = way(sourceCurrency, destinationCurrency, amount, isFree);
          const back = way(destinationCurrency, sourceCurrency, there, isFree);
          expect(back).toBeLessThanOrEqual(amount);
          if (back > 0n) returned += 1;
        },
      ),
      { numRuns: 5_000 },
    );
    expect(returned).toBeGreaterThan(1_000);
  });

  test('within one currency, where the mid rate is 1, converts nothing', () => {
    fc.assert(
      fc.property(code, side, (currency, fixedSide) => {
        const ends = { sourceCurrency: currency, destinationCurrency: currency };
        const amount = corridorOf(currency, currency).fee.minimumMinor * 10n;
        const result = priced({ ...ends, fixedSide, amount, mid: parseRate('1') });
        expect(formatRate(result.rate)).toBe('1');
        expect(result.receiveMinor).toBe(result.netMinor);
        expect(result.midValueMinor).toBe(result.netMinor);
      }),
    );
  });
});

describe('a refusal', () => {
  test('is given for every amount outside the limits it names and for none within', () => {
    fc.assert(
      fc.property(
        corridors,
        side,
        fc.bigInt({ min: 0n, max: 10n ** 6n }),
        (ends, fixedSide, step) => {
          const small = refused({ ...ends, fixedSide, amount: 0n });
          const large = refused({ ...ends, fixedSide, amount: 10n ** 15n });
          expect([small.code, small.param]).toEqual(['amount_too_small', 'amount']);
          expect([large.code, large.param]).toEqual(['amount_too_large', 'amount']);
          const [least, most] = [limitIn(small), limitIn(large)];
          expect(least).toBeLessThan(most);

          const within = least + (step % (most - least));
          for (const amount of [least, within, most]) priced({ ...ends, fixedSide, amount });
          const below = least - 1n - step < 0n ? 0n : least - 1n - step;
          for (const amount of [least - 1n, below]) {
            expect(refused({ ...ends, fixedSide, amount }).code).toBe('amount_too_small');
          }
          for (const amount of [most + 1n, most + 1n + step]) {
            expect(refused({ ...ends, fixedSide, amount }).code).toBe('amount_too_large');
          }
        },
      ),
      { numRuns: 500 },
    );
  });

  test('is given before the sums of a batch could overflow the database, whatever the terms allow', () => {
    const corridor = { ...corridorOf('USD', 'IDR'), maximumMinor: 10n ** 14n };
    const ends = { sourceCurrency: 'USD', destinationCurrency: 'IDR', mid: parseRate('16000') };
    for (const fixedSide of ['source', 'destination'] as const) {
      const most = priceOn({ ...ends, corridor, fixedSide, amount: 10n ** 15n });
      if (!isRefusal(most)) throw new Error('The amount was priced.');
      expect(most.code).toBe('amount_too_large');
      const within = priceOn({ ...ends, corridor, fixedSide, amount: limitIn(most) });
      if (isRefusal(within)) throw new Error(JSON.stringify(within));
      expect(10_000n * within.receiveMinor).toBeLessThan(2n ** 63n);
      expect(10_000n * within.midValueMinor).toBeLessThan(2n ** 63n);
    }
  });

  test('of an amount names the limit in the currency of the request', () => {
    const ends = { sourceCurrency: 'USD', destinationCurrency: 'EUR', mid: parseRate('0.86') };
    expect(refused({ ...ends, fixedSide: 'source', amount: 101n })).toEqual({
      refused: true,
      code: 'amount_too_small',
      param: 'amount',
      expected: 'at least 102 (1.02 USD)',
      received: '101',
    });
    expect(refused({ ...ends, fixedSide: 'destination', amount: 10n ** 14n })).toMatchObject({
      expected: 'at most 85227694 (852276.94 EUR)',
    });
  });

  test('of a currency names the unsupported one and the supported ones', () => {
    const rest = { amount: 1_000n, fixedSide: 'source', mid: parseRate('1') } as const;
    const source = refused({ ...rest, sourceCurrency: 'RUB', destinationCurrency: 'EUR' });
    expect(source).toMatchObject({
      code: 'currency_unsupported',
      param: 'source_currency',
      received: 'RUB',
    });
    expect(source.expected).toContain('USD, EUR, GBP');
    const destination = refused({ ...rest, sourceCurrency: 'USD', destinationCurrency: 'eur' });
    expect(destination).toMatchObject({ param: 'destination_currency', received: 'eur' });
    const long = refused({ ...rest, sourceCurrency: 'X'.repeat(41), destinationCurrency: 'EUR' });
    expect(long.received).toBe('X'.repeat(40));
  });
});
