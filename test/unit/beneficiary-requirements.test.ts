import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { requirementsObject } from '../../src/contract/objects.js';
import { nationalCountries } from '../../src/domain/accountFormat.js';
import {
  accountRulesOf,
  beneficiaryCountries,
  beneficiaryTypes,
  validateBeneficiary,
} from '../../src/domain/beneficiary.js';

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

const body = z.record(z.string(), z.union([z.string(), z.record(z.string(), z.string())]));
test('the example has the requested currency', () => {
  for (const [country, currency] of [
    ['AE', 'AED'],
    ['SA', 'SAR'],
    ['TR', 'TRY'],
    ['IL', 'ILS'],
    ['GB', 'EUR'],
  ] as const) {
    const examples = accountRulesOf(country, currency).map((rules) =>
      rules.flatMap(({ field, example }) => (/^(currency|iban)$/.test(field) ? [example] : [])),
    );
    expect(examples).toEqual([[currency, expect.stringMatching(new RegExp(`^${country}`))]]);
  }
});

type Body = z.infer<typeof body>;
const described = z.object({
  examples: z.tuple([body]),
  properties: z.looseObject({ address: z.object({ required: z.array(z.string()) }) }),
});

/** Whether the validation rules accept a body. */
function isTaken(sentBody: Body): boolean {
  const sent = Object.entries(sentBody).flatMap(([name, value]) =>
    typeof value === 'string'
      ? [[name, value] as const]
      : Object.entries(value).map(([part, each]) => [`address[${part}]`, each] as const),
  );
  return 'country' in validateBeneficiary(Object.fromEntries(sent), '2026-11-24');
}

const without = <T>(all: Readonly<Record<string, T>>, name: string) =>
  Object.fromEntries(Object.entries(all).filter(([each]) => each !== name));

const ajv = new Ajv2020({ strict: true });

describe('the JSON Schema of what a country requires', () => {
  // Countries whose accounts all have an IBAN only differ in the IBAN.
  const cases = [...nationalCountries, 'DE', 'JE'].flatMap((country) =>
    beneficiaryTypes.map((type) => [country, type] as const),
  );

  test.each(cases)(
    'in %s, %s: accepts and refuses the same bodies as the rules',
    (country, type) => {
      const rulesWith = (sent: object) => accountRulesOf(country, undefined, { sent });
      const addressed = rulesWith({ type, 'address[country]': country });
      const answer = requirementsObject(country, null, rulesWith({ type }), addressed);
      for (const { json_schema } of [answer, ...answer.alternatives]) {
        const validate = ajv.compile(JSON.parse(JSON.stringify(json_schema)));
        const { examples, properties } = described.parse(json_schema);
        const [example] = examples;
        const address = { town: 'Springfield', country };
        const isShort = properties.address.required.length === Object.keys(address).length;
        const right: readonly Body[] = isShort ? [example, { ...example, address }] : [example];
        for (const each of right) expect([validate(each), isTaken(each)]).toEqual([true, true]);
        const wrong: readonly Body[] = [
          ...Object.keys(example).map((name) => without(example, name)),
          ...Object.keys(address).map((name) => ({ ...example, address: without(address, name) })),
          { ...example, currency: 'XXX' },
        ];
        for (const each of wrong) expect([validate(each), isTaken(each)]).toEqual([false, false]);
        // An unknown parameter never reaches the rules.
        expect(validate({ ...example, account_no: '1' })).toBe(false);
      }
    },
  );
});
