import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { beneficiaryCountries } from '../../src/domain/beneficiary.js';
import { type ApiClient, textOf, untilStatus } from '../fixtures/client.js';
import { beneficiary as german } from '../fixtures/requestPayout.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
let client: ApiClient;
beforeAll(async () => {
  system = await startSystem();
  client = system.client;
});
afterAll(() => system.stop());

const problem = z.object({ errors: z.array(z.object({ code: z.string(), param: z.string() })) });

const create = (json: object) => client('POST /v1/beneficiaries', { json });

async function verdictsOf(json: object): Promise<readonly string[]> {
  const { errors } = problem.parse((await create(json)).body);
  return errors.map(({ code, param }) => `${code} ${param}`);
}

const address = {
  street: 'Unter den Linden',
  building: '77',
  town: 'Berlin',
  post_code: '10117',
  country: 'DE',
};

describe('the holder of an account', () => {
  it('is stored from JSON as from a form, and reads back masked', async () => {
    const held = { ...german, date_of_birth: '1990-05-17' };
    const stored = await create({ ...held, address });
    expect(stored.status).toBe(201);
    expect(stored.body).toMatchObject({ date_of_birth: '****', address });
    expect((await client(`GET /v1/beneficiaries/${textOf(stored, 'id')}`)).body).toEqual(
      stored.body,
    );
    const parts = Object.entries(address).map(
      ([part, text]) => [`address[${part}]`, text] as const,
    );
    const form = { ...held, ...Object.fromEntries(parts) };
    const again = await client('POST /v1/beneficiaries', { form });
    expect(again.body).toMatchObject({ address, same_account_as: textOf(stored, 'id') });
    const { body } = await client('GET /v1/beneficiaries');
    const older = { id: textOf(stored, 'id'), same_account_as: textOf(again, 'id') };
    expect(body).toMatchObject({ data: [again.body, older] });
  });

  it('does not distinguish it from the same account stored without one', async () => {
    const iban = 'DE02120300000000202051';
    const first = await create({ ...german, iban });
    const second = await create({ ...german, iban, date_of_birth: '1990-05-17', address });
    expect(second.body).toMatchObject({ same_account_as: textOf(first, 'id') });
  });

  it('is refused with every part that is wrong, under its own name', async () => {
    expect(
      await verdictsOf({
        ...german,
        date_of_birth: '2199-01-01',
        address: { ...address, post_code: 'K1A 0B1', region: 'x'.repeat(36) },
      }),
    ).toEqual([
      'beneficiary_invalid date_of_birth',
      'beneficiary_invalid address[post_code]',
      'beneficiary_invalid address[region]',
    ]);
    expect(await verdictsOf({ ...german, iban: 'DE00', address: { twon: 'Berlin' } })).toEqual([
      'parameter_unknown address[twon]',
      'beneficiary_invalid iban',
    ]);
    expect(await verdictsOf({ ...german, address: { ...address, town: 7 } })).toEqual([
      'parameter_invalid address[town]',
    ]);
    // Tomorrow by the service's clock.
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);
    expect(await verdictsOf({ ...german, date_of_birth: tomorrow })).toEqual([
      'beneficiary_invalid date_of_birth',
    ]);
  });
});

describe('the name of a holder', () => {
  it('reaches the bank as it was shown, in the letters that the payment carries', async () => {
    const chinese = {
      ...{ type: 'business', country: 'CN', currency: 'CNY' },
      ...{ account_number: '6240008631401148', bank_code: '102100099996' },
    };
    const shown: unknown[] = [];
    for (const [details, expected] of [
      [{ ...german, name: 'Jürgen Größer & Søn' }, 'Juergen Groesser + Son'],
      [{ ...german, name: '山田太郎', name_latin: 'Yamada Tarō' }, 'Yamada Taro'],
      [{ ...chinese, name: '山水公司' }, '山水公司'],
    ] as const) {
      const { body } = await create(details);
      expect(body).toMatchObject({ name: details.name, name_on_statement: expected });
      shown.push(body['name_on_statement']);
      const payout = await client('POST /v1/payouts', {
        json: { beneficiary: body['id'], source_currency: 'USD', amount: 5_000 },
      });
      await untilStatus(client, textOf(payout, 'id'), 'settled');
    }
    const lines = readFileSync(system.bank.journalFile, 'utf8').trim().split('\n');
    const named = z.object({ beneficiary: z.object({ name: z.string() }) });
    const names = lines.flatMap((line) => {
      const order = named.safeParse(JSON.parse(line));
      return order.success ? [order.data.beneficiary.name] : [];
    });
    expect(names).toEqual(shown);
  });

  it('must also be given in Latin letters if its script cannot be transliterated', async () => {
    expect(await verdictsOf({ ...german, name: 'محمد علي' })).toEqual([
      'parameter_missing name_latin',
    ]);
  });
});

const requirements = z.object({
  fields: z.array(
    z.object({
      name: z.string(),
      required: z.boolean(),
      pattern: z.string(),
      example: z.string(),
    }),
  ),
});

it('the examples of what a country requires make a beneficiary', async () => {
  const path = 'GET /v1/beneficiary_requirements';
  for (const country of ['CA', 'US', 'DE', 'JP', 'GR']) {
    expect(beneficiaryCountries()).toContain(country);
    for (const [type, own, other] of [
      ['individual', 'date_of_birth', 'registration_number'],
      ['business', 'registration_number', 'date_of_birth'],
    ] as const) {
      const typeQuery = type === 'business' ? '&type=business' : '';
      const { body } = await client(`${path}?country=${country}${typeQuery}`);
      const { fields } = requirements.parse(body);
      const required = fields.filter((field) => field.required);
      const form = Object.fromEntries(required.map(({ name, example }) => [name, example]));
      expect((await client('POST /v1/beneficiaries', { form })).status, country).toBe(201);
      // And with all optional fields.
      const whole = Object.fromEntries(fields.map(({ name, example }) => [name, example]));
      const answer = await client('POST /v1/beneficiaries', { form: whole });
      expect(answer.status, `${country} ${JSON.stringify(answer.body)}`).toBe(201);
      expect(answer.body).toMatchObject({
        type,
        address: { country },
        [own]: expect.stringMatching(/^\*{4}/),
      });
      expect(answer.body).not.toHaveProperty(other);
      for (const { pattern, example } of fields) expect(example).toMatch(new RegExp(pattern, 'u'));
    }
  }
});
