import { expect, test } from 'vitest';
import { accountRulesOf, beneficiaryCountries } from '../../src/domain/beneficiary.js';

test.each(beneficiaryCountries())(
  'every example of %s is valid and fits its pattern',
  (country) => {
    for (const rule of accountRulesOf(country).flat()) {
      expect(rule.read(rule.example), `${rule.field} ${rule.example}`).toBe(rule.example);
      expect(rule.example).toMatch(new RegExp(rule.pattern, 'u'));
      expect('', rule.field).not.toMatch(new RegExp(rule.pattern, 'u'));
    }
  },
);
