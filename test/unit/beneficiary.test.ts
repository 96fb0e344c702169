import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  accountRulesOf,
  type BeneficiaryDetails,
  beneficiaryCountries,
  maskedDetails,
  updateDetails,
  validateBeneficiary,
} from '../../src/domain/beneficiary.js';
import { corridorCurrencies } from '../../src/domain/corridor.js';
import { beneficiaryFields, type SentDetails } from '../../src/domain/fieldRule.js';
import type { Refusal } from '../../src/domain/refusal.js';

/** The date of every request in this file. */
const today = '2026-11-23';

const german = {
  type: 'individual',
  name: 'Erika Mustermann',
  country: 'DE',
  currency: 'EUR',
  iban: 'DE89370400440532013000',
} as const;

const american = {
  type: 'business',
  name: 'Example Inc.',
  country: 'US',
  currency: 'USD',
  account_number: '000123456789',
  routing_number: '021000021',
} as const;

function accepted(sent: SentDetails): BeneficiaryDetails {
  const result = validateBeneficiary(sent, today);
  if (!('country' in result)) throw new Error(JSON.stringify(result));
  return result;
}

function refusals(sent: SentDetails): readonly Refusal[] {
  const result = validateBeneficiary(sent, today);
  if ('country' in result) throw new Error('The beneficiary was accepted');
  expect(result.length).toBeGreaterThan(0);
  return result;
}

/** The code and parameter of every refusal, which programs act on. */
function verdicts(sent: SentDetails): string[] {
  return refusals(sent).map(({ code, param }) => `${code} ${param}`);
}

describe('an account with an IBAN', () => {
  test.each([
    ['DE', 'DE89370400440532013000'],
    ['GB', 'GB82WEST12345698765432'],
    ['FR', 'FR1420041010050500013M02606'],
    ['NO', 'NO9386011117947'],
    ['MT', 'MT84MALT011000012345MTLCAST001S'],
    ['SA', 'SA0380000000608010167519'],
    // A territory whose accounts are French accounts.
    ['RE', 'FR1420041010050500013M02606'],
  ])('in %s is accepted with %s', (country, iban) => {
    // Strict, because a field that was not sent must be absent rather than undefined.
    expect(accepted({ ...german, country, iban })).toStrictEqual({ ...german, country, iban });
  });

  test.each([
    ['FR1420041010050500013M02606', 'BL GF GP MF MQ NC PF PM RE TF WF YT'],
    ['GB82WEST12345698765432', 'GG IM JE'],
    ['FI2112345600000785', 'AX'],
  ])('like %s is valid for the territories %s as well', (iban, territories) => {
    const issuer = iban.slice(0, 2);
    for (const country of territories.split(' ')) {
      const sent = { ...german, country };
      expect(accepted({ ...sent, iban, bic: `ABCD${country}22` })).toMatchObject({ iban });
      expect(accepted({ ...sent, iban, bic: `ABCD${issuer}22` })).toMatchObject({ iban });
      expect(verdicts({ ...sent, iban, bic: 'ABCDDE22' })).toEqual(['beneficiary_invalid bic']);
      const [refusal] = refusals({ ...sent, iban, bic: 'ABCD' });
      expect(refusal).toEqual({
        refused: true,
        code: 'beneficiary_invalid',
        param: 'bic',
        expected: `a BIC of 8 or 11 characters, of which the fifth and sixth are ${country} or ${issuer} (for example ABCD${country}2A)`,
        received: 'ABCD',
      });
    }
  });

  test('is not complete without its number', () => {
    expect(verdicts({ ...german, iban: '' })).toEqual(['parameter_missing iban']);
  });

  test('is normalised: upper case without spaces, and the name is trimmed', () => {
    const sent = {
      name: ' Erika Mustermann ',
      iban: ' de89 3704 0044 0532 0130 00 ',
      bic: 'cobadeff',
    };
    expect(accepted({ ...german, ...sent })).toEqual({ ...german, bic: 'COBADEFF' });
  });

  test('can receive every corridor currency and no other', () => {
    for (const currency of corridorCurrencies()) accepted({ ...german, currency });
    expect(verdicts({ ...german, currency: 'RUB' })).toEqual(['beneficiary_invalid currency']);
  });

  test('is refused when any single digit of its number is changed', () => {
    const examples = [
      'DE89370400440532013000',
      'GB82WEST12345698765432',
      'FR1420041010050500013M02606',
    ];
    fc.assert(
      fc.property(
        fc.constantFrom(...examples),
        fc.nat(),
        fc.integer({ min: 1, max: 9 }),
        (iban, at, by) => {
          const places = [...iban.matchAll(/\d/g)].map(({ index }) => index);
          const place = places[at % places.length] ?? 0;
          const digit = (Number.parseInt(iban.charAt(place), 10) + by) % 10;
          const wrong = `${iban.slice(0, place)}${digit}${iban.slice(place + 1)}`;
          const sent = { ...german, country: iban.slice(0, 2), iban: wrong };
          expect(verdicts(sent)).toEqual(['beneficiary_invalid iban']);
        },
      ),
      { numRuns: 500 },
    );
  });

  test.each([
    [
      'GB82WEST12345698765432',
      'IBANs of accounts in Germany start with DE; this one is from the United Kingdom.',
    ],
    ['XX82WEST12345698765432', 'IBANs of accounts in Germany start with DE.'],
    ['DE8937040044053201300', 'The IBAN has 21 characters instead of 22.'],
    [
      'DE8937040044053201300X',
      'The letters and digits of the IBAN do not follow the format of IBANs from Germany.',
    ],
    [
      'DE8937O400440532013000',
      'The IBAN has a letter where a digit belongs, such as O for 0 or I for 1.',
    ],
    [
      'DE98370400440532013000',
      'The check digits of the IBAN are wrong: a character is wrong or two are swapped.',
    ],
  ])('gets a specific message for %s', (iban, detail) => {
    const [refusal] = refusals({ ...german, iban });
    expect(refusal).toMatchObject({
      code: 'beneficiary_invalid',
      param: 'iban',
      expected:
        'an IBAN that starts with DE and has 22 characters (for example DE89370400440532013000)',
      received: `****${iban.slice(-4)}`,
      detail,
    });
  });

  test('is also checked against its national check digits', () => {
    // The IBAN's own check digits are valid; those of the French account are not.
    const [refusal] = refusals({ ...german, country: 'FR', iban: 'FR8420041010050500013M02607' });
    expect(refusal?.detail).toContain('The national check digits of the IBAN are wrong');
  });

  test('accepts only a BIC of its own country', () => {
    for (const bic of ['COBADEFFXXX', 'COBADEFF']) accepted({ ...german, bic });
    for (const bic of ['BNPAFRPP', 'COBADEF', 'C0BADEFF', 'COBADEFFXX']) {
      expect(verdicts({ ...german, bic })).toEqual(['beneficiary_invalid bic']);
    }
    const jersey = { ...german, country: 'JE', iban: 'GB82WEST12345698765432' };
    expect(accepted({ ...jersey, bic: 'WESTJESH' }).bic).toBe('WESTJESH');
  });
});

describe('an account in the United States', () => {
  test('is accepted, and is a checking account unless it says otherwise', () => {
    expect(accepted(american)).toEqual({ ...american, account_type: 'checking' });
    expect(accepted({ ...american, account_type: 'savings' }).account_type).toBe('savings');
    expect(accepted({ ...american, routing_number: '0210-0002 1' }).routing_number).toBe(
      '021000021',
    );
  });

  test.each([
    '010000003',
    '090000007',
    '120000003',
    '210000007',
    '290000001',
    '320000007',
    '610000005',
    '690000009',
    '720000005',
    '800000006',
  ])('may be at a bank with the routing number %s', (routing_number) => {
    expect(accepted({ ...american, routing_number })).toMatchObject({ routing_number });
  });

  test('receives USD only', () => {
    expect(verdicts({ ...american, currency: 'EUR' })).toEqual(['beneficiary_invalid currency']);
  });

  test('is refused when any single digit of the routing number is changed', () => {
    const numbers = ['021000021', '110000000', '121000358', '322271627', '011401533'];
    fc.assert(
      fc.property(
        fc.constantFrom(...numbers),
        fc.nat({ max: 8 }),
        fc.integer({ min: 1, max: 9 }),
        (routing_number, place, by) => {
          accepted({ ...american, routing_number });
          const digit = (Number.parseInt(routing_number.charAt(place), 10) + by) % 10;
          const wrong = `${routing_number.slice(0, place)}${digit}${routing_number.slice(place + 1)}`;
          expect(verdicts({ ...american, routing_number: wrong })).toEqual([
            'beneficiary_invalid routing_number',
          ]);
        },
      ),
      { numRuns: 500 },
    );
  });

  test.each([
    ['routing_number', '000000000'],
    // The check digits are valid, but no district has these numbers.
    ['routing_number', '130000006'],
    ['routing_number', '200000004'],
    ['routing_number', '330000000'],
    ['routing_number', '600000002'],
    ['routing_number', '730000008'],
    ['routing_number', '810000009'],
    ['routing_number', '990000000'],
    // Nine of the ten digits form a valid number.
    ['routing_number', '0210000210'],
    ['routing_number', '1021000021'],
    ['routing_number', '02100002'],
    ['account_number', '123'],
    ['account_number', '123456789012345678'],
    ['account_number', '12345A'],
    ['account_number', '١٢٣٤٥'],
    ['account_type', 'current'],
  ])('is refused with the %s %s', (field, text) => {
    expect(verdicts({ ...american, [field]: text })).toEqual([`beneficiary_invalid ${field}`]);
  });
});

describe('validation', () => {
  test('names everything that is wrong at once', () => {
    const sent = {
      type: 'robot',
      country: 'DE',
      currency: 'XXX',
      routing_number: '021000021',
      iban: 'DE00',
    };
    expect(verdicts(sent)).toEqual([
      'beneficiary_invalid type',
      'parameter_missing name',
      'beneficiary_invalid currency',
      'beneficiary_invalid iban',
      'parameter_unknown routing_number',
    ]);
  });

  test('names every missing parameter, and treats blank ones as missing', () => {
    const missing = ['type', 'name', 'country', 'currency'].map(
      (field) => `parameter_missing ${field}`,
    );
    expect(verdicts({})).toEqual(missing);
    expect(verdicts({ type: '', name: '  ', country: '', currency: '\n' })).toEqual(missing);
    expect(verdicts({ ...american, account_number: undefined, routing_number: '' })).toEqual([
      'parameter_missing account_number',
      'parameter_missing routing_number',
    ]);
  });

  test('refuses an unsupported country by name, without listing all codes', () => {
    const sendGermany = 'country must be an ISO 3166-1 code: send DE for Germany.';
    const details = ['Accounts in Sri Lanka cannot be paid.', sendGermany, undefined, sendGermany];
    for (const [index, country] of ['LK', 'de', 'constructor', 'Germany'].entries()) {
      const [refusal, ...others] = refusals({ ...german, country });
      expect(others).toEqual([]);
      expect(refusal?.detail).toBe(details[index]);
      expect(refusal).toMatchObject({
        code: 'beneficiary_invalid',
        param: 'country',
        received: country,
      });
      expect(refusal?.expected).toMatch(/ISO 3166-1/);
    }
  });

  test('keeps names to 140 characters without control characters', () => {
    expect(accepted({ ...german, name: 'é'.repeat(140) }).name).toHaveLength(140);
    for (const name of ['x'.repeat(141), 'a\u0000b', 'a\nb']) {
      expect(verdicts({ ...german, name })).toEqual(['beneficiary_invalid name']);
    }
  });

  test('lists the fields of the country, and masks a value that may be an account number', () => {
    const [refusal, ...others] = refusals({ ...german, routing_number: '1'.repeat(41) });
    expect(others).toEqual([]);
    expect(refusal).toEqual({
      refused: true,
      code: 'parameter_unknown',
      param: 'routing_number',
      expected: 'type, name, country, currency, iban, bic, name_latin, date_of_birth, address',
      received: '****1111',
      detail:
        'A beneficiary in Germany has no routing_number: the fields are type, name, country, currency, iban, bic, name_latin, date_of_birth, address.',
    });
  });

  test('accepts its own output unchanged', () => {
    for (const details of [accepted(german), accepted(american)]) {
      expect(accepted(details)).toEqual(details);
    }
  });

  test('never repeats an account number in a refusal', () => {
    const secret = '98765432109876543';
    for (const sent of [
      { ...american, account_number: `${secret}1` },
      { ...german, account_number: secret },
      { ...american, iban: `DE89${secret}` },
      { ...german, iban: `DE89${secret}` },
    ]) {
      const text = JSON.stringify(refusals(sent).map((each) => ({ ...each, expected: '' })));
      expect(text).toMatch(/\*{4}\d{4}"/);
      expect(text).not.toMatch(/\d{5}/);
    }
  });
});

describe('the rules of a country', () => {
  test('exist for every supported country and for no other', () => {
    expect(beneficiaryCountries()).toEqual(
      expect.arrayContaining(['AE', 'DE', 'GB', 'JE', 'RE', 'US']),
    );
    for (const country of beneficiaryCountries()) {
      for (const rules of accountRulesOf(country)) {
        const fields = rules.map(({ field }) => field);
        expect(fields.length).toBeGreaterThan(4);
        expect(fields).toEqual(beneficiaryFields.filter((field) => fields.includes(field)));
      }
    }
    // Some countries print numbers that look like IBANs, but are not in the registry.
    for (const country of ['LK', 'DZ', 'AO', '']) {
      expect(accountRulesOf(country)).toEqual([]);
      expect(beneficiaryCountries()).not.toContain(country);
    }
  });

  test('describe each field in a sentence', () => {
    // test/unit/holder.test.ts covers the holder's fields.
    const isOfEveryCountry = (field: string) =>
      /^(country|name_latin|date|registration|address)/.test(field);
    const sentencesOf = (country: string) =>
      accountRulesOf(country)[0]?.flatMap(({ field, required, expected }) =>
        isOfEveryCountry(field) ? [] : [`${field}${required ? '' : '?'}: ${expected}`],
      );
    const name = "the account holder's name, 1 to 140 characters without control characters";
    expect(sentencesOf('US')).toEqual([
      'type: individual or business',
      `name: ${name}`,
      'currency: USD, the currency of accounts in the United States',
      'account_number: an account number of 4 to 17 digits',
      'routing_number: an ABA routing number of 9 digits, the last of which is a check digit',
      'account_type?: checking or savings (default: checking)',
    ]);
    expect(sentencesOf('NO')).toEqual([
      'type: individual or business',
      `name: ${name}`,
      `currency: a currency that can be paid: ${corridorCurrencies().join(', ')}`,
      'iban: an IBAN that starts with NO and has 15 characters',
      'bic?: a BIC of 8 or 11 characters, of which the fifth and sixth are NO',
    ]);
  });
});

test('account numbers are masked to their last digits, never showing more than half of them', () => {
  expect(maskedDetails(german)).toEqual({ ...german, iban: '****3000' });
  expect(maskedDetails(accepted(american))).toMatchObject({
    account_number: '****6789',
    routing_number: '021000021',
  });
  expect(maskedDetails({ ...american, account_number: '1234' }).account_number).toBe('****34');
});

describe('an update', () => {
  const otherIban = 'DE02120300000000202051';
  const housed = {
    ...{ ...german, name_latin: 'Erika M', bic: 'COBADEFFXXX', date_of_birth: '1990-02-03' },
    ...{ 'address[street]': 'Am Markt', 'address[town]': 'Köln', 'address[country]': 'DE' },
  };
  const before = accepted(housed);

  test.each<[string, SentDetails, object]>([
    ['nothing keeps everything', {}, before],
    [
      'the same name in other spaces keeps the Latin one',
      { name: 'Erika  Mustermann' },
      { ...before, name: 'Erika  Mustermann' },
    ],
    [
      'a name drops the Latin form of the old one',
      { name: 'Ada Byron' },
      { ...before, name: 'Ada Byron', name_latin: undefined },
    ],
    [
      'a name and its Latin form keeps both',
      { name: 'Ada Byron', name_latin: 'A Byron' },
      { ...before, name: 'Ada Byron', name_latin: 'A Byron' },
    ],
    [
      'an IBAN drops the BIC of the old one',
      { iban: otherIban },
      { ...before, iban: otherIban, bic: undefined },
    ],
    ['a blank detail removes it', { date_of_birth: '' }, { ...before, date_of_birth: undefined }],
    [
      'a part of the address replaces the whole address',
      { 'address[town]': 'Bonn', 'address[country]': 'DE' },
      { ...before, address: { town: 'Bonn', country: 'DE' } },
    ],
    [
      'the type drops what the new type does not have',
      { type: 'business' },
      { ...before, type: 'business', date_of_birth: undefined },
    ],
    ['the same country and currency is allowed', { country: 'DE', currency: 'EUR' }, before],
  ])('of %s', (_, sent, after) => {
    expect(updateDetails(before, sent, today)).toEqual(after);
  });

  test.each([
    ['country', 'FR', 'DE'],
    ['currency', 'USD', 'EUR'],
  ])('of the %s is refused', (param, received, old) => {
    expect(updateDetails(before, { [param]: received }, today)).toMatchObject([
      {
        ...{ code: 'beneficiary_invalid', param, received, hint: 'Create another beneficiary.' },
        expected: `${old}, as before: an update does not change the ${param}`,
      },
    ]);
  });

  test('of a detail that the account does not have is refused', () => {
    expect(updateDetails(before, { routing_number: '021000021' }, today)).toMatchObject([
      { code: 'parameter_unknown', param: 'routing_number' },
    ]);
  });
});
