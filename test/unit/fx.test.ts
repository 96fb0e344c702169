import Big from 'big.js';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  convertBackUp,
  convertFloor,
  crossMid,
  formatRate,
  parseRate,
  quotedRate,
} from '../../src/domain/fx.js';
import { iso4217 } from '../../src/domain/iso4217.js';
import { digitsOf } from '../../src/domain/money.js';

const currency = fc.constantFrom(...iso4217.keys());
const minor = fc.bigInt({ min: 0n, max: 10n ** 14n });

/** Rate texts as sources publish them: 1 to 12 significant digits, from 10^-9 to 10^9. */
const rateText = fc
  .tuple(fc.bigInt({ min: 1n, max: 10n ** 12n - 1n }), fc.integer({ min: -20, max: -3 }))
  .map(([digits, exponent]) => new Big(digits.toString()).times(`1e${exponent}`).toFixed())
  .filter((text) => (text.split('.')[1] ?? '').length <= 24);
const rate = rateText.map(parseRate);

function significantDigits(value: Big): number {
  return value.c.length;
}

describe('rates as text', () => {
  test('a rate is read and printed without losing a digit', () => {
    fc.assert(
      fc.property(rateText, (text) => {
        expect(formatRate(parseRate(text))).toBe(text);
      }),
    );
  });

  test('very small and very large rates are printed without an exponent', () => {
    expect(formatRate(parseRate('0.00000001840000'))).toBe('0.0000000184');
    expect(formatRate(parseRate('123456789012345'))).toBe('123456789012345');
  });

  test.each([
    '0',
    '0.000',
    '-1',
    '+1',
    '1e3',
    '1.',
    '.5',
    '01',
    ' 1',
    '1\n',
    'NaN',
    'Infinity',
    '',
  ])('%j is not a rate', (text) => {
    expect(() => parseRate(text)).toThrow(RangeError);
  });

  test('the error quotes a text that is not a rate, but never in full length', () => {
    expect(() => parseRate('1,5')).toThrow('Not a decimal rate: 1,5');
    expect(() => parseRate('x'.repeat(1_000))).toThrow(/: x{60}$/);
    expect(() => parseRate('0.0')).toThrow('A rate must be above zero');
  });
});

describe('the quoted rate', () => {
  test.each([
    ['1.0812', 50, '1.075794'],
    ['1.23456789012', 0, '1.234567890'],
    ['0.999999999999', 0, '0.9999999999'],
    ['0.0000183512345678', 100, '0.00001816772222'],
  ])('of %s less %i basis points is %s', (mid, spread, quoted) => {
    expect(quotedRate(parseRate(mid), spread).eq(quoted)).toBe(true);
  });

  test('never exceeds mid × (1 − spread) and loses less than one unit of its tenth digit', () => {
    fc.assert(
      fc.property(rate, fc.integer({ min: 0, max: 9_999 }), (mid, spread) => {
        const exact = mid.times(10_000 - spread).times('0.0001');
        const quoted = quotedRate(mid, spread);
        expect(quoted.lte(exact)).toBe(true);
        expect(exact.minus(quoted).lt(new Big(`1e${exact.e - 9}`))).toBe(true);
      }),
    );
  });

  test('survives as a JSON number', () => {
    fc.assert(
      fc.property(rate, fc.integer({ min: 0, max: 500 }), (mid, spread) => {
        const quoted = quotedRate(mid, spread);
        expect(significantDigits(quoted)).toBeLessThanOrEqual(10);
        const json: unknown = JSON.parse(JSON.stringify(Number(formatRate(quoted))));
        expect(new Big(String(json)).eq(quoted)).toBe(true);
      }),
    );
  });
});

describe('conversion', () => {
  test('never exceeds the exact product and is less than one minor unit below it', () => {
    fc.assert(
      fc.property(minor, currency, currency, rate, (amount, source, destination, by) => {
        const exact = new Big(amount.toString())
          .times(by)
          .times(`1e${digitsOf(destination) - digitsOf(source)}`);
        const converted = new Big(convertFloor(amount, source, destination, by).toString());
        expect(converted.lte(exact)).toBe(true);
        expect(exact.minus(converted).lt(1)).toBe(true);
      }),
      { numRuns: 1_000 },
    );
  });

  test('keeps sums exact that a float would change', () => {
    expect(convertFloor(9_007_199_254_740_993n, 'USD', 'USD', parseRate('1'))).toBe(
      9_007_199_254_740_993n,
    );
    // As floats, 0.29 × 100 is 28.999999999999996 and would be rounded down to 28.
    expect(convertFloor(100n, 'USD', 'EUR', parseRate('0.29'))).toBe(29n);
  });

  test.each([
    [10_000n, 'USD', 'JPY', '155.375', 15_537n],
    [100n, 'JPY', 'KWD', '0.0019746', 197n],
    [1n, 'KWD', 'JPY', '506.4', 0n],
    [12_345n, 'EUR', 'USD', '1.1612', 14_335n],
  ])('%s minor units of %s in %s at %s are %s', (amount, source, destination, by, expected) => {
    expect(convertFloor(amount, source, destination, parseRate(by))).toBe(expected);
  });

  test('backwards: the amount reaches the requested one and one unit less does not', () => {
    fc.assert(
      fc.property(minor, currency, currency, rate, (requested, source, destination, by) => {
        const needed = convertBackUp(requested, source, destination, by);
        expect(convertFloor(needed, source, destination, by)).toBeGreaterThanOrEqual(requested);
        if (needed === 0n) expect(requested).toBe(0n);
        else expect(convertFloor(needed - 1n, source, destination, by)).toBeLessThan(requested);
      }),
      { numRuns: 1_000 },
    );
  });

  test('a negative amount is a bug and throws', () => {
    const bug = new RangeError('Only amounts of zero or more are converted');
    expect(() => convertFloor(-1n, 'USD', 'EUR', parseRate('1'))).toThrow(bug);
    expect(() => convertBackUp(-1n, 'USD', 'EUR', parseRate('1'))).toThrow(bug);
  });
});

describe('the cross rate', () => {
  test.each([
    ['1', '1.1612', '1.1612'],
    ['1.1612', '1', '0.861178091629'],
    ['3', '1', '0.333333333333'],
    ['3', '2', '0.666666666667'],
    // Exact ties in the thirteenth digit go to the even neighbour.
    ['1', '1.000000000005', '1'],
    ['1', '1.000000000015', '1.00000000002'],
    // Just above a tie: rounding in two steps would round down.
    ['3', '3.000000000015000000000001', '1.00000000001'],
    ['19412.50', '0.35625', '0.0000183515775918'],
    ['0.35625', '19412.50', '54491.2280702'],
  ])('from %s to %s per euro is %s', (source, destination, expected) => {
    expect(formatRate(crossMid(source, destination))).toBe(expected);
  });

  test('is within half a unit of its twelfth significant digit of the exact quotient', () => {
    fc.assert(
      fc.property(rateText, rateText, (source, destination) => {
        const mid = crossMid(source, destination);
        fc.pre(mid.e < 12);
        const error = mid.times(source).minus(destination).abs().times(2);
        expect(significantDigits(mid)).toBeLessThanOrEqual(12);
        expect(error.lte(new Big(source).times(`1e${mid.e - 11}`))).toBe(true);
      }),
    );
  });

  test('refuses a text that is not a rate', () => {
    expect(() => crossMid('0', '1')).toThrow(RangeError);
    expect(() => crossMid('1', '')).toThrow(RangeError);
  });
});
