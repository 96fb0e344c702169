import { z } from 'zod';

/** What the schemas of many objects are made of. */

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
export const count = z.int().min(0);
