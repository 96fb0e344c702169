import { describe, expect, test } from 'vitest';
import type { SentDetails } from '../../src/domain/beneficiary.js';
import {
  accountRulesOf,
  type BeneficiaryDetails,
  validateBeneficiary,
} from '../../src/domain/beneficiary.js';
import numbers from '../fixtures/accountNumbers.json' with { type: 'json' };

type Case = {
  readonly details: Readonly<Record<string, string>>;
  readonly source: string;
  readonly why?: string;
};
const cases: ReadonlyMap<string, { valid: readonly Case[]; invalid: readonly Case[] }> = new Map(
  Object.entries(numbers),
);

/** The fields of which no kind of account in the country takes the value. */
function refusedFields(country: string, details: Case['details']): readonly string[] {
  const rules = accountRulesOf(country).flat();
  return Object.entries(details)
    .filter(([name, value]) => {
      const own = rules.filter(({ field }) => field === name);
      return own.every(({ read }) => read(value) === undefined);
    })
    .map(([name]) => name);
}

describe.each([...cases])('published numbers of %s', (country, { valid, invalid }) => {
  test('are several, and each names its source', () => {
    expect(valid.length).toBeGreaterThanOrEqual(4);
    expect(invalid.length).toBeGreaterThanOrEqual(3);
    for (const { source } of [...valid, ...invalid]) expect(source.length).toBeGreaterThan(8);
  });

  test.each(valid)('are taken: $details', ({ details }) => {
    expect(refusedFields(country, details)).toEqual([]);
  });

  test.each(invalid)('are refused: $details ($why)', ({ details }) => {
    expect(refusedFields(country, details)).not.toEqual([]);
  });
});

/** The usual fields of a country with the examples that its requirements give. */
function exampleOf(country: string, kind = 0): SentDetails {
  const rules = accountRulesOf(country)[kind] ?? [];
  return Object.fromEntries(
    rules.filter(({ required }) => required).map(({ field, example }) => [field, example]),
  );
}

function accepted(sent: SentDetails): BeneficiaryDetails {
  const result = validateBeneficiary(sent);
  if (!('country' in result)) throw new Error(JSON.stringify(result));
  return result;
}

const sentencesOf = (sent: SentDetails) => {
  const result = validateBeneficiary(sent);
  return 'country' in result ? [] : result.map(({ param, detail }) => `${param}: ${detail}`);
};

describe('the kind of account', () => {
  test.each([...cases.keys()])('of %s is found by the fields that are sent', (country) => {
    for (const [kind, rules] of accountRulesOf(country).entries()) {
      const sent = exampleOf(country, kind);
      expect(accepted(sent)).toMatchObject(sent);
      expect(rules.length).toBeGreaterThan(4);
    }
  });

  test('is by IBAN where an IBAN or another currency than the national one is sent', () => {
    const british = { type: 'individual', name: 'Ada', country: 'GB' } as const;
    const iban = 'GB82WEST12345698765432';
    expect(accepted({ ...british, currency: 'GBP', iban })).toMatchObject({ iban });
    expect(accepted({ ...british, currency: 'EUR', iban })).toMatchObject({ iban });
    expect(sentencesOf({ ...british, currency: 'EUR' })).toEqual(['iban: undefined']);
    expect(sentencesOf({ ...british, currency: 'GBP' })).toEqual([
      'account_number: undefined',
      'routing_number: undefined',
    ]);
    const local = { ...british, account_number: '66374958', routing_number: '08-99-99' };
    expect(accepted({ ...local, currency: 'GBP' })).toMatchObject({ routing_number: '089999' });
    expect(sentencesOf({ ...local, currency: 'EUR' })).toEqual(['currency: undefined']);
  });

  test('has the account type that is usual where none is sent', () => {
    expect(accepted(exampleOf('JP')).account_type).toBe('ordinary');
    expect(accepted({ ...exampleOf('BR'), account_type: 'savings' }).account_type).toBe('savings');
    expect(accepted(exampleOf('BR', 1))).not.toHaveProperty('account_type');
  });
});

describe('slips of people are named', () => {
  test.each([
    [
      'US',
      { routing_number: '21000021' },
      'The routing number has 8 digits instead of 9: zeros in front of it may have been lost.',
    ],
    [
      'US',
      { routing_number: '021000012' },
      'The check digits of the routing number are wrong: a character is wrong or two are swapped.',
    ],
    [
      'GB',
      { routing_number: '66374958' },
      'The sort code has 8 digits instead of 6. If it is the account number, send it as account_number.',
    ],
    [
      'GB',
      { account_number: '089999' },
      'The account number has 6 digits instead of 8. If it is the sort code, send it as routing_number.',
    ],
    ['GB', { account_number: 'GB82WEST12345698765432' }, 'This is an IBAN, which goes in iban.'],
    [
      'AU',
      { routing_number: '23-604' },
      'The BSB has 5 digits instead of 6: zeros in front of it may have been lost.',
    ],
    [
      'MX',
      { account_number: '03218000011835971' },
      'The CLABE has 17 digits instead of 18: zeros in front of it may have been lost.',
    ],
    [
      'MX',
      { account_number: '032180000118359791' },
      'The check digits of the CLABE are wrong: a character is wrong or two are swapped.',
    ],
    [
      'MX',
      { account_number: 'O32180000118359719' },
      'The CLABE has a letter where a digit belongs, such as O for 0 or I for 1.',
    ],
    ['CA', { branch_code: '004841' }, 'The transit number has 6 digits instead of 5.'],
    [
      'JP',
      { account_number: '1234' },
      'The account number has 4 digits instead of 7. If it is the bank code, send it as bank_code.',
    ],
    [
      'NZ',
      { account_number: '01-0902-0068388-00' },
      'The check digits of the account number are wrong: a character is wrong or two are swapped.',
    ],
    ['BR', { tax_id: '390.533.447-06' }, 'undefined'],
  ])('in %s: %j', (country, slip, sentence) => {
    const [field] = Object.keys(slip);
    expect(sentencesOf({ ...exampleOf(country), ...slip })).toEqual([`${field}: ${sentence}`]);
  });
});
