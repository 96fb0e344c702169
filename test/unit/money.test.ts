import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import codes from 'currency-codes';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { iso4217 } from '../../src/domain/iso4217.js';
import {
  digitsOf,
  formatMinor,
  isCurrency,
  minorUnitsHint,
  parseMajor,
} from '../../src/domain/money.js';

const currency = fc.constantFrom(...iso4217.keys());
const minor = fc.bigInt({ min: -(10n ** 18n), max: 10n ** 18n });

describe('the ISO 4217 table', () => {
  test('matches the output of its script for the dated list and its amendments', () => {
    const tool = fileURLToPath(new URL('../../tools/iso4217.mjs', import.meta.url));
    const { status, stderr } = spawnSync(process.execPath, [tool, '--check'], { encoding: 'utf8' });
    expect([status, stderr]).toEqual([0, '']);
  });

  test('has every code once, in order, with 0, 2, 3 or 4 digits', () => {
    const codes = [...iso4217.keys()];
    expect(codes).toHaveLength(157);
    expect(codes).toEqual([...new Set(codes)].sort());
    for (const [code, { digits, name }] of iso4217) {
      expect(code).toMatch(/^[A-Z]{3}$/);
      expect([0, 2, 3, 4]).toContain(digits);
      expect(name.length).toBeGreaterThan(2);
    }
  });

  test.each([
    [0, 'BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF'],
    [3, 'BHD IQD JOD KWD LYD OMR TND'],
    [4, 'CLF UYW'],
  ])('has %i digits for exactly the currencies that ISO lists', (digits, codes) => {
    const found = [...iso4217].filter(([, entry]) => entry.digits === digits);
    expect(found.map(([code]) => code).join(' ')).toBe(codes);
  });

  test('agrees with other tables, except where they do not follow ISO', () => {
    const differing = (digitsIn: (code: string) => number | undefined) =>
      [...iso4217].flatMap(([code, { digits }]) => (digitsIn(code) === digits ? [] : [code]));
    // That list is older than the Caribbean guilder.
    expect(differing((code) => codes.code(code)?.digits)).toEqual(['XCG']);
    // Unicode counts the decimals in use, and omits cents that no price contains.
    const style = 'currency';
    const unicode = (currency: string) =>
      new Intl.NumberFormat('en', { style, currency }).resolvedOptions().maximumFractionDigits;
    expect(differing(unicode).join(' ')).toBe(
      'AFN ALL COP HUF IDR IQD IRR KPW LAK LBP MGA MMK PKR SOS SYP YER',
    );
  });

  test('follows ISO where Intl and older tables do not', () => {
    for (const code of ['HUF', 'IDR', 'MGA', 'COP', 'PKR', 'MRU']) expect(digitsOf(code)).toBe(2);
    for (const code of ['XCG', 'ZWG', 'SLE', 'VED', 'STN']) expect(isCurrency(code)).toBe(true);
    for (const code of ['BGN', 'ANG', 'HRK', 'CUC', 'ZWL', 'XAU', 'XTS', 'XXX', 'XAD', 'usd', '']) {
      expect(isCurrency(code)).toBe(false);
    }
  });
});

describe('amounts as text', () => {
  test.each([
    [123450n, 'USD', '1234.50'],
    [1234n, 'JPY', '1234'],
    [1234n, 'KWD', '1.234'],
    [5n, 'EUR', '0.05'],
    [-5n, 'EUR', '-0.05'],
    [-1234n, 'JPY', '-1234'],
    [0n, 'USD', '0.00'],
    [0n, 'JPY', '0'],
    [-10001n, 'UYW', '-1.0001'],
  ])('%s minor units of %s are printed as %s', (amount, code, text) => {
    expect(formatMinor(amount, code)).toBe(text);
    expect(parseMajor(text, code)).toBe(amount);
  });

  test('a printed amount is read back as the same amount, in every currency', () => {
    fc.assert(
      fc.property(minor, currency, (amount, code) => {
        expect(parseMajor(formatMinor(amount, code), code)).toBe(amount);
      }),
      { numRuns: 2_000 },
    );
  });

  test('missing decimals are filled up with zeros', () => {
    expect(parseMajor('12', 'USD')).toBe(1200n);
    expect(parseMajor('12.5', 'KWD')).toBe(12500n);
  });

  test.each([
    ['1.234', 'USD'],
    ['1.0', 'JPY'],
    ['1.', 'USD'],
    ['.5', 'USD'],
    ['01', 'USD'],
    ['+1', 'USD'],
    ['1e3', 'USD'],
    ['1,000', 'USD'],
    [' 1', 'USD'],
    ['1\n', 'USD'],
    ['', 'USD'],
    ['-', 'USD'],
    ['--1', 'USD'],
    ['٣', 'USD'],
    ['9'.repeat(31), 'USD'],
  ])('%j is not an amount of %s', (text, code) => {
    expect(parseMajor(text, code)).toBeUndefined();
  });

  test('an unknown currency is a bug and throws', () => {
    expect(() => digitsOf('BGN')).toThrow(new RangeError('Not an ISO 4217 currency: BGN'));
    expect(() => formatMinor(1n, 'toString')).toThrow(RangeError);
    expect(() => parseMajor('1', 'usd')).toThrow(RangeError);
  });
});

describe('the suggestion in place of an amount in major units', () => {
  test.each([
    ['12.50', 'USD', 'Send 1250 for 12.50 USD.'],
    ['1,250.00', 'USD', 'Send 1250 if you mean minor units, 125000 for 1250.00 USD.'],
    ['125000.0', 'KWD', 'Send 125000 if you mean minor units, 125000000 for 125000.000 KWD.'],
    ['1250 USD', 'USD', 'Send 1250 if you mean minor units, 125000 for 1250.00 USD.'],
    ['1250 JPY', 'JPY', 'Send 1250 for 1250 JPY.'],
    ['12.5 USD', 'USD', 'Send 1250 for 12.50 USD.'],
    ['12.5', 'KWD', 'Send 12500 for 12.500 KWD.'],
    ['012.50', 'USD', 'Send 1250 for 12.50 USD.'],
    ['00.50', 'USD', 'Send 50 for 0.50 USD.'],
    ['0012.00', 'USD', 'Send 12 if you mean minor units, 1200 for 12.00 USD.'],
    ['012.50', 'JPY', 'JPY has no decimal places.'],
    ['12.50', 'JPY', 'JPY has no decimal places.'],
    ['12.505', 'USD', 'USD has 2 decimal places.'],
    ['12.50 EUR', 'USD', 'The amount is in USD.'],
  ])('for %s %s is: %s', (text, currency, hint) => {
    expect(minorUnitsHint(text, currency)).toBe(hint);
  });

  test.each(['0.00', '00.00', '1250', 'abc', '', '-12.50', '1,25', '1e3'])(
    'for %j is missing',
    (text) => {
      expect(minorUnitsHint(text, 'USD')).toBeUndefined();
    },
  );
});
