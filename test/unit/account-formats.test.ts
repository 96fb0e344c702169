import { describe, expect, test } from 'vitest';
import { nationalAccounts } from '../../src/domain/accountFormat.js';
import {
  accountRulesOf,
  type BeneficiaryDetails,
  maskedDetails,
  validateBeneficiary,
} from '../../src/domain/beneficiary.js';
import { beneficiaryFields, type SentDetails } from '../../src/domain/fieldRule.js';
import { transferBody } from '../../src/rails/sandbox/wire.js';
import numbers from '../fixtures/accountNumbers.json' with { type: 'json' };

type Case = {
  readonly details: Readonly<Record<string, string>>;
  readonly source: string;
  readonly why?: string;
};
const cases: ReadonlyMap<string, { valid: readonly Case[]; invalid: readonly Case[] }> = new Map(
  Object.entries(numbers),
);

/** The fields whose value is invalid for every kind of account in the country. */
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
  test('are at least five of each kind, and each names its source', () => {
    expect(valid.length).toBeGreaterThanOrEqual(5);
    expect(invalid.length).toBeGreaterThanOrEqual(5);
    for (const { source } of [...valid, ...invalid]) expect(source.length).toBeGreaterThan(8);
  });

  test.each(valid)('are accepted: $details', ({ details }) => {
    expect(refusedFields(country, details)).toEqual([]);
    const whole = accountRulesOf(country).filter((rules) =>
      rules.every(({ field, required }) => !required || field in details || isOfHolder(field)),
    );
    // Details that name a whole account are accepted as a beneficiary.
    const sent = { ...exampleOf(country), ...noAccount, ...details };
    if (whole.length > 0)
      expect(validateBeneficiary(sent, today)).toHaveProperty('country', country);
  });

  test.each(invalid)('are refused: $details ($why)', ({ details }) => {
    expect(refusedFields(country, details)).not.toEqual([]);
  });
});

/** The date of every request in this file. */
const today = '2026-11-23';

const identity: ReadonlySet<string> = new Set(['type', 'name', 'country', 'currency']);
const isOfHolder = (field: string) => identity.has(field) || field.startsWith('address[');
const noAccount = Object.fromEntries(
  beneficiaryFields.flatMap((field) => (isOfHolder(field) ? [] : [[field, undefined]])),
);

/** The kinds of account that receive the national currency, the most common one first. */
const kindsOf = (country: string) =>
  accountRulesOf(country, nationalAccounts(country, undefined)?.currency);

/** The required fields of a country with the examples from its requirements. */
function exampleOf(country: string, kind = 0): SentDetails {
  const rules = kindsOf(country)[kind] ?? [];
  return Object.fromEntries(
    rules.filter(({ required }) => required).map(({ field, example }) => [field, example]),
  );
}

function accepted(sent: SentDetails): BeneficiaryDetails {
  const result = validateBeneficiary(sent, today);
  if (!('country' in result)) throw new Error(JSON.stringify(result));
  return result;
}

const sentencesOf = (sent: SentDetails) => {
  const result = validateBeneficiary(sent, today);
  return 'country' in result ? [] : result.map(({ param, detail }) => `${param}: ${detail}`);
};

describe('the kind of account', () => {
  test.each([...cases.keys()])('in %s is recognised by the fields that are sent', (country) => {
    for (const [kind, rules] of kindsOf(country).entries()) {
      const sent = exampleOf(country, kind);
      const ofAccount = Object.entries(sent).filter(([field]) => !field.startsWith('address['));
      expect(accepted(sent)).toMatchObject(Object.fromEntries(ofAccount));
      expect(rules.length).toBeGreaterThan(4);
    }
  });

  test('is an IBAN account when an IBAN or a foreign currency is sent', () => {
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

  test('gets the usual account type when none is sent', () => {
    expect(accepted(exampleOf('US')).account_type).toBe('checking');
    expect(accepted({ ...exampleOf('BR'), account_type: 'savings' }).account_type).toBe('savings');
    expect(accepted(exampleOf('BR', 1))).not.toHaveProperty('account_type');
  });
});

describe('common mistakes get a specific message', () => {
  test.each([
    [
      'US',
      { routing_number: '21000021' },
      'The routing number has 8 digits instead of 9: leading zeros may have been lost.',
    ],
    [
      'US',
      { routing_number: '021000012' },
      'The check digit of the routing number is wrong: a digit is wrong or two are swapped.',
    ],
    [
      'GB',
      { routing_number: '66374958' },
      'The sort code has 8 digits instead of 6: it is the account number, which goes in account_number.',
    ],
    [
      'GB',
      { account_number: '089999' },
      'The account number has 6 digits instead of 8: leading zeros may have been lost, or it is the sort code, which goes in routing_number.',
    ],
    [
      'GB',
      { account_number: 'GB82WEST12345698765432' },
      'This is an IBAN: send it as iban, and leave out the other fields of the account.',
    ],
    [
      'AU',
      { routing_number: '23-604' },
      'The BSB has 5 digits instead of 6: leading zeros may have been lost.',
    ],
    [
      'MX',
      { account_number: '03218000011835971' },
      'The CLABE has 17 digits instead of 18: leading zeros may have been lost.',
    ],
    [
      'MX',
      { account_number: '032180000118359791' },
      'The check digit of the CLABE is wrong: a digit is wrong or two are swapped.',
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
      'The account number has 4 digits instead of 7: leading zeros may have been lost, or it is the bank code, which goes in bank_code.',
    ],
    [
      'NZ',
      { account_number: '01-0902-0068388-00' },
      'The check digits of the account number are wrong: a digit is wrong or two are swapped.',
    ],
    [
      'BR',
      { tax_id: '390.533.447-06' },
      'The check digits of the tax number are wrong: a digit is wrong or two are swapped.',
    ],
    [
      'US',
      { account_number: 'GB82WEST12345698765432' },
      'This is an IBAN; accounts in this country have none.',
    ],
    [
      'MX',
      { account_number: '4111111111111111' },
      'This is the number of a card, not of an account.',
    ],
  ])('in %s: %j', (country, slip, sentence) => {
    const [field] = Object.keys(slip);
    expect(sentencesOf({ ...exampleOf(country), ...slip })).toEqual([`${field}: ${sentence}`]);
  });
});

describe('fields that are sent together', () => {
  const ada = { type: 'individual', name: 'Ada' } as const;

  test('an IBAN or a PIX key decides which kind of account is meant', () => {
    const british = { ...ada, country: 'GB', currency: 'GBP', iban: 'GB82WEST12345698765432' };
    const both = { ...british, account_number: '66374958', routing_number: '089999' };
    expect(sentencesOf({ ...british, routing_number: '089999' })).toEqual([
      'routing_number: With iban, a beneficiary in the United Kingdom has no routing_number: the fields are type, name, country, currency, iban, bic, name_latin, date_of_birth, address.',
    ]);
    expect(sentencesOf(both)).toHaveLength(2);
    const brazilian = { ...ada, country: 'BR', currency: 'BRL', tax_id: '39053344705' };
    const pix = { ...brazilian, pix_key: '+5511961234567', bank_code: '218' };
    expect(sentencesOf(pix)).toEqual([
      expect.stringContaining('With pix_key, a beneficiary in Brazil has no bank_code'),
    ]);
  });

  test('a phone number as PIX key without its country code is not read as a CPF', () => {
    const pix = { ...exampleOf('BR', 1), pix_key: '11961234567' };
    expect(sentencesOf(pix)).toEqual([
      expect.stringContaining('starts with its country code, +55'),
    ]);
    expect(sentencesOf({ ...pix, pix_key: `${'a'.repeat(60)}@${'b'.repeat(60)}.br` })).toHaveLength(
      1,
    );
  });

  test('account numbers and tax IDs are masked, even when they are sent in another field', () => {
    expect(maskedDetails(accepted(exampleOf('BR', 1)))).toMatchObject({
      pix_key: '****0000',
      tax_id: '****4705',
    });
    for (const slip of [
      { country: 'GB', routing_number: '66374958' },
      { country: 'GB', routing_number: 'GB82 WEST 1234 5698 7654 32' },
      { country: 'CN', bank_code: '6240008631401148' },
      { country: 'US', bank_code: '39053344705' },
      { country: 'BR', tax_id: '39053344706' },
      { country: 'JP', bank_code: '1234567' },
      { country: 'PH', bic: '66374958' },
      { country: 'GB', routing_number: '６６３７４９５８' },
    ]) {
      const refused = validateBeneficiary({ ...exampleOf(slip.country), ...slip }, today);
      // The expected value contains our own example.
      const text = JSON.stringify(refused).replaceAll(/"expected":"[^"]*"/g, '');
      expect(text).toMatch(/"\*{4}[^"]{3,4}"/);
      expect(text).not.toMatch(/\p{Nd}{5}|5698/u);
    }
  });
});

test('an account number that a spreadsheet has changed is refused, not read as another one', () => {
  for (const account_number of ['123456789.0', '12345/67890', '12345²']) {
    expect(sentencesOf({ ...exampleOf('US'), account_number })).toHaveLength(1);
  }
  expect(sentencesOf({ ...exampleOf('BR'), branch_code: '123-4' })).toHaveLength(1);
});

test('without a currency the IBAN account comes first, then the usual national one', () => {
  const keys = accountRulesOf('BR').map((rules) => rules.map(({ field }) => field));
  expect(
    keys.map((fields) => fields.find((field) => /iban|pix_key|bank_code/.test(field))),
  ).toEqual(['iban', 'bank_code', 'pix_key']);
});

test('the transfer to the bank has the account, its type, its branch and its holder', () => {
  const bodyOf = (country: string, kind = 0) => {
    const transfer = { key: 'k', amountMinor: 1n, currency: 'JPY', remittance: '' };
    return transferBody({ ...transfer, beneficiary: accepted(exampleOf(country, kind)) });
  };
  expect(bodyOf('JP')).toMatchObject({
    beneficiary: {
      name: 'ヤマダ タロウ',
      account: '0001234',
      bank_code: '0001',
      branch_code: '001',
      account_type: 'ordinary',
    },
  });
  expect(bodyOf('BR', 1)).toMatchObject({
    beneficiary: { account: '123e4567-e89b-12d3-a456-426655440000', tax_id: '39053344705' },
  });
});

describe('accounts in the United Kingdom', () => {
  const british = { type: 'individual', name: 'Ada Lovelace', country: 'GB', currency: 'GBP' };

  test.each([
    // Vocalink's own cases, as in github:uphold/uk-modulus-checking@4fb15a3 test/index_test.js.
    ['089999', '66374959'],
    ['107999', '88837493'],
    ['203099', '66831036'],
    ['203099', '58716970'],
    ['118765', '64371388'],
    ['938063', '15764273'],
    ['938063', '15764264'],
    ['938063', '15763217'],
  ])('are refused when the modulus check of the sort code fails: %s %s', (sortCode, account) => {
    const sent = { ...british, routing_number: sortCode, account_number: account };
    expect(validateBeneficiary(sent, today)).toEqual([
      {
        refused: true,
        code: 'beneficiary_invalid',
        param: 'account_number',
        expected:
          'an account number of 8 digits, with leading zeros if it has only 6 or 7 (for example 66374958)',
        received: `****${account.slice(-4)}`,
        detail: expect.stringContaining('The account number does not match the sort code'),
      },
    ]);
  });

  test('are accepted when no check is known for the sort code', () => {
    const sent = { ...british, routing_number: '999999', account_number: '12345678' };
    expect(accepted(sent).account_number).toBe('12345678');
  });
});

describe('accounts in Nigeria', () => {
  const nigerian = { type: 'individual', name: 'Ada Lovelace', country: 'NG', currency: 'NGN' };

  test.each([
    ['058', '0000014579'],
    ['011', '0000014578'],
    ['011', '0000014597'],
    // A bank with a 5-digit code instead of the 3-digit one that its code resembles.
    ['50547', '0000014579'],
    // An invented number, from github:transferwise/api-docs@4f9a383 source/includes/reference/_recipients.md.
    ['044', '0584412903'],
  ])('are refused when the check digit does not match the bank code: %s %s', (bank, account) => {
    const sent = { ...nigerian, bank_code: bank, account_number: account };
    expect(sentencesOf(sent)).toEqual([
      'account_number: The account number does not match the bank code: a digit of one is wrong or two are swapped.',
    ]);
  });
});

test('changing any one digit of an account with check digits is refused', () => {
  const whole = {
    AR: ['account_number', '0940099324001313220028'],
    CL: ['tax_id', '125319092'],
    CO: ['tax_id', '8999990017'],
    PE: ['account_number', '01136600010003254221'],
  } as const;
  for (const [country, [field, value]] of Object.entries(whole)) {
    expect(accepted({ ...exampleOf(country), [field]: value })).toHaveProperty(field, value);
    for (const [index, digit] of Array.from(value).entries()) {
      const other = `${(Number.parseInt(digit, 10) + 1) % 10}`;
      const slip = value.slice(0, index) + other + value.slice(index + 1);
      expect(sentencesOf({ ...exampleOf(country), [field]: slip }), slip).toHaveLength(1);
    }
  }
});

describe('mistakes that were reported in public issues and documentation', () => {
  const reported = [...cases].flatMap(([country, { invalid }]) =>
    invalid
      .filter(({ source }) => /issues\/|pull\/|docs\.(?!wise)|api-docs|airwallex/.test(source))
      .map((each) => ({ country, ...each })),
  );

  test('each get a message that says what to change', () => {
    expect(reported.length).toBeGreaterThanOrEqual(10);
    const messages = reported.map(({ country, details, why }) => {
      const sent = { ...exampleOf(country, 'pix_key' in details ? 1 : 0), ...details };
      const result = validateBeneficiary(sent, today);
      const refusals = 'country' in result ? [] : result;
      const sentences = refusals.map(
        ({ param, detail, expected }) => `${param}: ${detail ?? `expected ${expected}`}`,
      );
      return [`${country}, ${why}`, ...sentences];
    });
    expect(messages).toMatchInlineSnapshot(`
      [
        [
          "GB, the two fields swapped",
          "account_number: The account number has 6 digits instead of 8: leading zeros may have been lost, or it is the sort code, which goes in routing_number.",
          "routing_number: The sort code has 8 digits instead of 6: it is the account number, which goes in account_number.",
        ],
        [
          "GB, the account number was pasted in the sort code field",
          "routing_number: The sort code has 8 digits instead of 6: it is the account number, which goes in account_number.",
        ],
        [
          "CA, institution and transit given as one 9-digit EFT number 0YYYXXXXX in the transit field",
          "branch_code: The transit number has 9 digits instead of 5.",
        ],
        [
          "AU, 12 digits: a Nium sandbox number that Adyen's 5-9 digits refuse",
          "account_number: expected an account number of 5 to 9 digits (for example 123456789)",
        ],
        [
          "IN, MICR code (9 digits) in the IFSC field",
          "routing_number: expected an IFSC of 11 characters: 4 letters, a zero, and 6 letters or digits (for example HDFC0002854)",
        ],
        [
          "JP, account of 4 digits: accepted by old Gumroad, refused by Stripe since",
          "account_number: The account number has 4 digits instead of 7: leading zeros may have been lost, or it is the bank code, which goes in bank_code.",
        ],
        [
          "JP, bank code of 3 digits (leading zero lost)",
          "bank_code: The bank code has 3 digits instead of 4: leading zeros may have been lost, or it is the branch code, which goes in branch_code.",
        ],
        [
          "CN, an Alipay phone number in the account field: plus sign",
          "account_number: expected an account or card number of 8 to 32 digits (for example 6240008631401148)",
        ],
        [
          "MY, 9-character SWIFT code",
          "bic: expected a BIC of 8 or 11 characters, of which the fifth and sixth are MY (for example HBMBMYKL)",
        ],
        [
          "BR, wrong check digits (Wise sample 123.456.789-12)",
          "pix_key: The check digits are wrong for a CPF or CNPJ; a phone number starts with its country code, +55.",
        ],
        [
          "BR, phone without +55: 11 digits, looks like a CPF",
          "pix_key: The check digits are wrong for a CPF or CNPJ; a phone number starts with its country code, +55.",
        ],
        [
          "BR, branch with its check digit",
          "branch_code: expected a branch (agência) of up to 4 digits without its check digit (for example 1234)",
        ],
        [
          "CO, the placeholder of a provider",
          "tax_id: The check digits of the tax number are wrong: a digit is wrong or two are swapped.",
        ],
        [
          "CO, a passport",
          "tax_id: expected a CC of 6 to 8 digits or of 10 that begin with 1, or a NIT with its check digit (for example 8999990017)",
        ],
        [
          "PE, an example without the right check digits",
          "account_number: The check digits of the CCI are wrong: a digit is wrong or two are swapped.",
        ],
        [
          "PE, the placeholder of a provider",
          "account_number: The check digits of the CCI are wrong: a digit is wrong or two are swapped.",
        ],
        [
          "GH, a number of Kenya",
          "account_number: expected a mobile number with its country code, +233 and 9 digits (for example +233240000000)",
        ],
        [
          "KE, a number of Ghana",
          "account_number: expected a mobile number with its country code, +254 and 9 digits (for example +254700000000)",
        ],
        [
          "KE, an account of a bank",
          "account_number: expected a mobile number with its country code, +254 and 9 digits (for example +254700000000)",
        ],
        [
          "KE, code of a bank",
          "bank_code: expected the mobile money operator: mpesa, airtel or tkash",
        ],
        [
          "KE, placeholders",
          "account_number: expected a mobile number with its country code, +254 and 9 digits (for example +254700000000)",
        ],
      ]
    `);
  });
});
