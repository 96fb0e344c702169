import { describe, expect, test } from 'vitest';
import {
  accountRulesOf,
  beneficiaryCountries,
  maskedDetails,
  nameOnStatement,
  validateBeneficiary,
} from '../../src/domain/beneficiary.js';
import type { SentDetails } from '../../src/domain/fieldRule.js';

const today = '2026-11-23';

const german = {
  type: 'individual',
  name: 'Erika Mustermann',
  country: 'DE',
  currency: 'EUR',
  iban: 'DE89370400440532013000',
} as const;

const canadian = {
  type: 'business',
  name: 'Maple Ltd.',
  country: 'CA',
  currency: 'CAD',
  account_number: '3456712',
  bank_code: '006',
  branch_code: '04841',
} as const;

const chinese = {
  type: 'business',
  name: '山水公司',
  country: 'CN',
  currency: 'CNY',
  account_number: '6240008631401148',
  bank_code: '102100099996',
} as const;

/** An address with its parts named as in a form. */
function at(parts: Readonly<Record<string, string>>): SentDetails {
  return Object.fromEntries(
    Object.entries(parts).map(([part, text]) => [`address[${part}]`, text]),
  );
}

const accepted = (sent: SentDetails) => {
  const result = validateBeneficiary(sent, today);
  if (!('country' in result)) throw new Error(JSON.stringify(result));
  return result;
};

const verdicts = (sent: SentDetails): readonly string[] => {
  const result = validateBeneficiary(sent, today);
  return 'country' in result ? [] : result.map(({ code, param }) => `${code} ${param}`);
};

const sentencesOf = (sent: SentDetails) => {
  const result = validateBeneficiary(sent, today);
  return 'country' in result ? [] : result.map(({ detail, expected }) => detail ?? expected);
};

describe('an address', () => {
  const berlin = { street: 'Unter den Linden', building: '77', town: 'Berlin', country: 'DE' };

  test('is stored in parts, with the post code in the format of its country', () => {
    const british = { town: 'London', post_code: 'ec1y 8sy', country: 'GB' };
    expect(accepted({ ...german, ...at(british) }).address).toEqual({
      ...british,
      post_code: 'EC1Y 8SY',
    });
    expect(accepted(german)).not.toHaveProperty('address');
  });

  test('is optional, but if sent it needs a town and a country', () => {
    expect(verdicts({ ...german, ...at({ street: 'Unter den Linden' }) })).toEqual([
      'parameter_missing address[town]',
      'parameter_missing address[country]',
    ]);
    expect(verdicts({ ...german, ...at({ street: ' ' }) })).toEqual([]);
  });

  test('is required in full where the scheme refuses a payment without one', () => {
    const parts = ['street', 'town', 'post_code', 'region', 'country'];
    expect(verdicts(canadian)).toEqual(parts.map((part) => `parameter_missing address[${part}]`));
    // The beneficiary may live in another country, where post codes have another form.
    const home = { ...berlin, post_code: '10117', region: 'Berlin' };
    expect(accepted({ ...canadian, ...at(home) }).address).toEqual(home);
    const required = beneficiaryCountries().filter((country) =>
      accountRulesOf(country)
        .flat()
        .some(({ field, required }) => required && field.startsWith('address[')),
    );
    expect(required).toEqual(['CA']);
  });

  test.each([
    ['US', '94105', 'K1A 0B1', 'a post code of the United States, such as 95014'],
    ['CA', 'K1A 0B1', '94105', 'a post code of Canada, such as H3Z 2Y7'],
    ['GB', 'W1A 4ZZ', 'W1A', 'a post code of the United Kingdom, such as EC1Y 8SY'],
    ['DE', '10117', '1011', 'a post code of Germany, such as 26133'],
    ['FR', '75008', '7500', 'a post code of France, such as 33380'],
    ['NL', '1234AB', '0123 AB', 'a post code of the Netherlands, such as 1234 AB'],
    ['JP', '１５４－００２３', '154', 'a post code of Japan, such as 154-0023'],
    ['BR', '40301-110', '4030', 'a post code of Brazil, such as 40301-110'],
  ])('in %s may have a post code like %s, but not %s', (country, right, wrong, expected) => {
    const sent = { ...german, ...at({ town: 'Town', country }) };
    expect(verdicts({ ...sent, 'address[post_code]': right })).toEqual([]);
    expect(validateBeneficiary({ ...sent, 'address[post_code]': wrong }, today)).toEqual([
      {
        refused: true,
        code: 'beneficiary_invalid',
        param: 'address[post_code]',
        expected,
        received: expect.any(String),
      },
    ]);
  });

  test.each(['XX', 'UK', 'de', 'Germany'])(
    'cannot be in %s, which is not an ISO 3166-1 code',
    (country) => {
      expect(verdicts({ ...german, ...at({ town: 'Town', country }) })).toEqual([
        'beneficiary_invalid address[country]',
      ]);
    },
  );

  test('may have any post code where the country has none', () => {
    expect(
      verdicts({ ...german, ...at({ town: 'Dubai', country: 'AE', post_code: 'X' }) }),
    ).toEqual([]);
  });

  test('has parts that fit ISO 20022, and every invalid part is named', () => {
    const longest = {
      street: 'x'.repeat(70),
      building: 'x'.repeat(16),
      town: 'x'.repeat(35),
      region: 'x'.repeat(35),
      country: 'AE',
      post_code: 'X'.repeat(16),
    };
    expect(accepted({ ...german, ...at(longest) }).address).toEqual(longest);
    for (const [part, text] of Object.entries(longest).filter(([name]) => name !== 'country')) {
      const sent = { ...longest, [part]: `${text}x` };
      expect(verdicts({ ...german, ...at(sent) })).toEqual([
        `beneficiary_invalid address[${part}]`,
      ]);
    }
    const tooLong = { ...longest, street: 'x'.repeat(71), town: 'x'.repeat(36), country: 'Narnia' };
    expect(verdicts({ ...german, iban: 'DE00', ...at(tooLong) })).toEqual([
      'beneficiary_invalid iban',
      'beneficiary_invalid address[street]',
      'beneficiary_invalid address[town]',
      'beneficiary_invalid address[country]',
    ]);
  });

  test('is stored in the characters that the payment message accepts', () => {
    const parts = { street: 'Königstraße', town: 'Œuilly', country: 'DE' };
    expect(accepted({ ...german, ...at(parts) }).address).toEqual({
      street: 'Koenigstrasse',
      town: 'Ouilly',
      country: 'DE',
    });
    expect(sentencesOf({ ...german, ...at({ town: '北京', country: 'CN' }) })).toEqual([
      'address[town] has letters that the payment cannot carry: send it in Latin letters.',
    ]);
    const own = { street: '长安街', town: '北京', country: 'CN' };
    expect(accepted({ ...chinese, ...at(own) }).address).toEqual(own);
  });
});

describe('a date of birth', () => {
  test.each(['1900-01-01', '2000-02-29', '2026-11-22'])('may be %s', (date_of_birth) => {
    expect(accepted({ ...german, date_of_birth })).toMatchObject({ date_of_birth });
  });

  test.each([
    '1899-12-31',
    '2026-11-23',
    '2027-01-01',
    '2001-02-29',
    '1990-02-31',
    '1990-13-01',
    '17.05.1990',
    '1990-5-17',
  ])('may not be %s, and the refusal does not repeat it', (date_of_birth) => {
    const result = validateBeneficiary({ ...german, date_of_birth }, today);
    expect(result).toMatchObject([{ param: 'date_of_birth', received: '****' }]);
    expect(JSON.stringify(result)).not.toContain(date_of_birth);
  });

  test('is for an individual, and a registration number for a business', () => {
    const born = { date_of_birth: '1990-05-17' };
    const registered = { registration_number: 'HRB 86891' };
    expect(verdicts({ ...german, ...born })).toEqual([]);
    expect(verdicts({ ...german, type: 'business', ...registered })).toEqual([]);
    expect(sentencesOf({ ...german, type: 'business', ...born })).toEqual([
      expect.stringContaining('A beneficiary of the type business in Germany has no date_of_birth'),
    ]);
    expect(sentencesOf({ ...german, ...registered })).toEqual([
      expect.stringContaining('of the type individual in Germany has no registration_number'),
    ]);
    const fields = accountRulesOf('DE').flatMap((rules) => rules.map(({ field }) => field));
    expect(fields).toEqual(expect.arrayContaining(['date_of_birth', 'registration_number']));
  });
});

test('a registration number has at most 35 characters', () => {
  const business = { ...german, type: 'business' };
  expect(verdicts({ ...business, registration_number: 'X'.repeat(35) })).toEqual([]);
  for (const registration_number of ['X'.repeat(36), '-1', 'HRB#1']) {
    expect(verdicts({ ...business, registration_number })).toEqual([
      'beneficiary_invalid registration_number',
    ]);
  }
});

test("the holder's identity data is returned masked, and the address in full", () => {
  const address = { town: 'Berlin', country: 'DE' };
  const born = { ...german, date_of_birth: '1990-05-17', ...at(address) };
  expect(maskedDetails(accepted(born))).toMatchObject({ date_of_birth: '****', address });
  const registered = { ...german, type: 'business', registration_number: 'HRB 86891' };
  expect(maskedDetails(accepted(registered)).registration_number).toBe('****6891');
});

describe('the name on the statement', () => {
  const shown = (sent: SentDetails) => nameOnStatement(accepted(sent));

  test("is in Latin letters, transliterated by the rules of the account's country", () => {
    expect(shown({ ...german, name: 'Jürgen Größer' })).toBe('Juergen Groesser');
    const finnish = { ...german, country: 'FI', iban: 'FI2112345600000785' };
    expect(shown({ ...finnish, name: 'Jürgen Größer' })).toBe('Jurgen Grosser');
    const name = 'Γιώργος & Υιοί';
    const { name: kept, ...details } = accepted({ ...german, name });
    expect(kept).toBe(name);
    expect(nameOnStatement({ ...details, name })).toBe('Giorgos + Yioi');
  });

  test('is required when no table covers the letters of the name', () => {
    for (const name of ['山田 太郎', 'محمد علي', 'Ada 山']) {
      expect(verdicts({ ...german, name })).toEqual(['parameter_missing name_latin']);
      expect(shown({ ...german, name, name_latin: 'Àda Yamada' })).toBe('Ada Yamada');
      expect(verdicts({ ...german, name, name_latin: name })).toEqual([
        'beneficiary_invalid name_latin',
      ]);
    }
    expect(verdicts({ ...german, name: '' })).toEqual(['parameter_missing name']);
    // The name as the bank has it, where that differs from the transliteration.
    expect(shown({ ...german, name: 'Юлия', name_latin: 'Julia' })).toBe('Julia');
  });

  test('is in the script of the country when the scheme accepts it', () => {
    expect(shown(chinese)).toBe('山水公司');
    expect(verdicts({ ...chinese, name_latin: 'Shanshui' })).toEqual([
      'parameter_unknown name_latin',
    ]);
    const japanese = {
      ...{ type: 'individual', name: '山田太郎', name_kana: 'ヤマダ タロウ', country: 'JP' },
      ...{ currency: 'JPY', account_number: '0001234', bank_code: '0001', branch_code: '001' },
      account_type: 'ordinary',
    };
    expect(shown(japanese)).toBe('ヤマダ タロウ');
  });

  test('has at most the 140 characters of ISO 20022', () => {
    expect(shown({ ...german, name: 'ß'.repeat(140) })).toBe('s'.repeat(140));
  });

  test('of a beneficiary that was stored without a Latin name is its name', () => {
    expect(nameOnStatement({ ...german, name: '山田' })).toBe('山田');
  });
});
