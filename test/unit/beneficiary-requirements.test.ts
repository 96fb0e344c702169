import { expect, test } from 'vitest';
import { beneficiaryCountries, fieldRulesOf } from '../../src/domain/beneficiary.js';

test.each(beneficiaryCountries())(
  'every example of %s is valid and fits its pattern',
  (country) => {
    for (const rule of fieldRulesOf(country) ?? []) {
      expect(rule.read(rule.example), `${rule.field} ${rule.example}`).toBe(rule.example);
      expect(rule.example).toMatch(new RegExp(rule.pattern, 'u'));
    }
  },
);

test('a pattern does not take what is too short', () => {
  for (const rule of fieldRulesOf('DE') ?? [])
    expect('').not.toMatch(new RegExp(rule.pattern, 'u'));
});
