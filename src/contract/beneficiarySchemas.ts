import { z } from 'zod';
import { accountTypes, beneficiaryTypes } from '../domain/beneficiary.js';
import { partNames } from '../domain/fieldRule.js';
import { currency, deleted, idOf, objectOf, time } from './shapes.js';

export const beneficiary = objectOf('beneficiary', {
  id: idOf('bnf'),
  type: z.enum(beneficiaryTypes),
  name: z.string(),
  country: z.string().describe('ISO 3166-1 alpha-2 code.'),
  currency,
  name_kana: z.string().optional(),
  name_latin: z.string().optional(),
  name_on_statement: z.string().describe('The name as it is written in the payment.'),
  iban: z.string().optional().describe('Masked: the last four characters.'),
  bic: z.string().optional(),
  account_number: z.string().optional().describe('Masked: at most the last four digits.'),
  routing_number: z.string().optional(),
  bank_code: z.string().optional(),
  branch_code: z.string().optional(),
  account_type: z.enum(accountTypes).optional(),
  pix_key: z.string().optional().describe('Masked: the last four characters.'),
  tax_id: z.string().optional().describe('Masked: the last four characters.'),
  date_of_birth: z.string().optional().describe('Masked: ****.'),
  registration_number: z.string().optional().describe('Masked: the last four characters.'),
  address: z
    .object(Object.fromEntries(partNames.map((part) => [part, z.string().optional()])))
    .optional()
    .describe('As it is written in the payment.'),
  same_account_as: idOf('bnf')
    .nullable()
    .describe('The oldest other beneficiary with this bank account.'),
  version: z.int().describe('Starts at 1; each update adds 1.'),
  created_at: time,
  updated_at: time.nullable().describe('When the details were last updated.'),
  deleted,
});

const requirement = z.object({
  name: z.string().describe('The name in a form: address[town] is the town of address.'),
  type: z.literal('string'),
  required: z.boolean(),
  description: z.string(),
  pattern: z.string(),
  example: z.string(),
});

const account = {
  fields: z.array(requirement).describe('The fields of one kind of account.'),
  json_schema: z
    .record(z.string(), z.unknown())
    .describe('The JSON body that creates such a beneficiary, as JSON Schema (2020-12).'),
};

export const requirements = objectOf('beneficiary_requirements', {
  country: z.string(),
  currency: currency.nullable(),
  ...account,
  alternatives: z
    .array(z.object(account))
    .describe('Other kinds of account that can be paid in the country, each with its fields.'),
});
