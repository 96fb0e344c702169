import { describe, expect, test } from 'vitest';
import { isAccountAt } from '../../src/domain/modulusCheck.js';

// The test cases of Vocalink's specification, as in github:uphold/uk-modulus-checking@299d4c8
// test/index_test.js.
const valid = [
  ['180002', '00000190'],
  ['309070', '02355688'],
  ['086090', '06774744'],
  ['938611', '07806039'],
  ['871427', '09123496'],
  ['074456', '11104102'],
  ['074456', '12345112'],
  ['309070', '12345668'],
  ['309070', '12345677'],
  ['827101', '28748352'],
  ['070116', '34012583'],
  ['200915', '41011166'],
  ['938600', '42368003'],
  ['871427', '46238510'],
  ['872427', '46238510'],
  ['938063', '55065200'],
  ['202959', '63748472'],
  ['134020', '63849203'],
  ['118765', '64371389'],
  ['089999', '66374958'],
  ['820000', '73688637'],
  ['827999', '73988638'],
  ['107999', '88837491'],
  ['871427', '99123496'],
  ['309070', '99345694'],
  ['772798', '99345694'],
] as const;
const invalid = [
  ['938063', '15763217'],
  ['938063', '15764264'],
  ['938063', '15764273'],
  ['203099', '58716970'],
  ['118765', '64371388'],
  ['089999', '66374959'],
  ['203099', '66831036'],
  ['107999', '88837493'],
] as const;

describe('the modulus check', () => {
  // Twice, because a check must not affect the next one.
  test.each([...valid, ...valid])('accepts %s %s', (sortCode, account) => {
    expect(isAccountAt(sortCode, account)).toBe(true);
  });

  test.each(invalid)('refuses %s %s', (sortCode, account) => {
    expect(isAccountAt(sortCode, account)).toBe(false);
  });

  test.each([
    ['an account that had to be shifted (exception 14)', '180109', '69025531', true],
    ['an account that passes one of two checks', '238599', '39620761', false],
    ['an account at a sort code without a check', '000000', '12345678', true],
  ])('handles %s', (_, sortCode, account, expected) => {
    expect(isAccountAt(sortCode, account)).toBe(expected);
  });

  test('accepts about one account in ten or eleven, as its methods imply', () => {
    const accounts = Array.from({ length: 2_000 }, (_, index) =>
      ((index * 49_999_993 + 12_345_678) % 100_000_000).toString().padStart(8, '0'),
    );
    const shareOf = (sortCode: string) =>
      accounts.filter((account) => isAccountAt(sortCode, account)).length / accounts.length;
    // One check modulo 11; two checks, modulo 11 and 10; and either of two modulo 11.
    expect(shareOf('010004')).toBeCloseTo(1 / 11, 1);
    expect(shareOf('938063')).toBeLessThan(0.03);
    expect(shareOf('309070')).toBeGreaterThan(0.12);
  });
});
