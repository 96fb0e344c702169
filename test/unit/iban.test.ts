import { describe, expect, test } from 'vitest';
import { ibanCountries, ibanExample, ibanFault, ibanIssuer } from '../../src/domain/iban.js';
import registry from '../../src/domain/ibanRegistry.json' with { type: 'json' };

const issuers = Object.keys(registry);

const replaced = (text: string, at: number, by: string) =>
  text.slice(0, at) + by + text.slice(at + 1);

/** Every text with one digit after the country code replaced by another digit. */
function oneDigitChanged(iban: string): readonly string[] {
  return Array.from(iban).flatMap((character, at) =>
    at < 2 || !/\d/.test(character)
      ? []
      : Array.from('0123456789')
          .filter((digit) => digit !== character)
          .map((digit) => replaced(iban, at, digit)),
  );
}

/** Every text with two different adjacent characters after the country code swapped. */
function neighboursSwapped(iban: string): readonly string[] {
  return Array.from(iban).flatMap((character, at) => {
    const next = iban[at + 1];
    if (at < 2 || next === undefined || next === character) return [];
    return [iban.slice(0, at) + next + character + iban.slice(at + 2)];
  });
}

describe('the SWIFT registry', () => {
  test('has 89 countries, and 16 territories that use the IBAN of another country', () => {
    expect(issuers).toHaveLength(89);
    expect(ibanCountries.size).toBe(105);
    expect(issuers).toEqual(
      expect.arrayContaining(['BI', 'DJ', 'FK', 'HN', 'PK', 'PS', 'BY', 'DO']),
    );
  });

  test.each(issuers)('has an example for %s that is accepted', (issuer) => {
    expect(ibanIssuer(issuer)).toBe(issuer);
    expect(ibanFault(ibanExample(issuer), issuer)).toBeUndefined();
  });

  test.each(issuers)('makes the change of any digit in the example of %s detectable', (issuer) => {
    const accepted = oneDigitChanged(ibanExample(issuer)).filter(
      (iban) => ibanFault(iban, issuer) === undefined,
    );
    expect(accepted).toEqual([]);
  });

  test('makes any swap of neighbouring characters in its examples detectable, except 1 and B', () => {
    const swaps = issuers.flatMap((issuer) =>
      neighboursSwapped(ibanExample(issuer)).map((iban) => ({ iban, issuer })),
    );
    const accepted = swaps.filter(({ iban, issuer }) => ibanFault(iban, issuer) === undefined);
    // B counts as 11 in mod 97, so 1B and B1 both become 111: the only undetected swap.
    expect(accepted).toEqual([{ iban: 'RO49AAAAB131007593840000', issuer: 'RO' }]);
    expect(swaps.length).toBeGreaterThan(1_000);
  });
});

describe('layouts that used to be refused', () => {
  test.each([
    ['PK', 'PK36SCBL0000001123456702', 'letters in the account'],
    ['BY', 'BY13NBRB3600900000002Z00AB00', 'letters after the bank'],
  ])('%s accepts %s: %s', (issuer, iban) => {
    expect(ibanFault(iban, issuer)).toBeUndefined();
  });
});

describe('national check digits', () => {
  // The IBAN's check digits are valid in each case, so that only the national ones can fail.
  test.each([
    ['AL', 7],
    ['FI', 17],
    ['IT', 4],
    ['MR', 26],
    ['SM', 4],
    ['TL', 22],
    ['TN', 23],
  ])('of %s are checked: any other character at index %i is refused', (issuer, at) => {
    const iban = ibanExample(issuer);
    const others = /\d/.test(iban[at] ?? '') ? '0123456789' : 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
    const faults = Array.from(others)
      .filter((other) => other !== iban[at])
      .map((other) => ibanFault(withCheckDigits(replaced(iban, at, other)), issuer));
    expect(new Set(faults)).toEqual(new Set(['national_check']));
  });
});

/** The same account with recalculated IBAN check digits (ISO 13616). */
function withCheckDigits(iban: string): string {
  const moved = `${iban.slice(4)}${iban.slice(0, 2)}00`;
  const digits = Array.from(moved)
    .map((character) => Number.parseInt(character, 36))
    .join('');
  const check = 98n - (BigInt(digits) % 97n);
  return `${iban.slice(0, 2)}${String(check).padStart(2, '0')}${iban.slice(4)}`;
}
