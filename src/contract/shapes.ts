import { z } from 'zod';

/** Shared parts of the response schemas. */

/** An object of the API, whose type is its member `object`. */
export const objectOf = <const Type extends string, Shape extends z.core.$ZodShape>(
  type: Type,
  shape: Shape,
) => z.object({ object: z.literal(type), ...shape });

export const idOf = (prefix: string) =>
  z
    .string()
    .regex(new RegExp(`^${prefix}_[0-9a-z]+$`))
    .meta({ examples: [`${prefix}_01ky`] });
export const time = z
  .string()
  .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  .meta({
    format: 'date-time',
    description: 'UTC, with milliseconds.',
    examples: ['2026-11-21T12:00:00.000Z'],
  });
export const currency = z
  .string()
  .regex(/^[A-Z]{3}$/)
  .meta({ description: 'ISO 4217 currency code.', examples: ['EUR'] });
export const decimal = z.string().regex(/^-?\d+(\.\d+)?$/);
export const money = decimal.meta({
  description: 'Major units, with the decimals that ISO 4217 defines for the currency.',
  examples: ['1234.50'],
});
export const deleted = z.literal(true).optional().describe('Present only on a deleted object.');
export const count = z.int().min(0);
