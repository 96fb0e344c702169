import { z } from 'zod';

/** The key that permanently identifies a transfer: 1–200 visible ASCII characters. */
export const transferKey = z
  .string({ error: 'expected a string' })
  .regex(/^[\x21-\x7e]{1,200}$/, 'expected 1 to 200 visible ASCII characters');

const text = (minimum: number, maximum: number) =>
  z
    .string({ error: 'expected a string' })
    .min(minimum, `expected ${minimum} to ${maximum} characters`)
    .max(maximum, `expected ${minimum} to ${maximum} characters`);

const amount = z
  .string({ error: 'expected a string of minor units' })
  .regex(/^[1-9]\d{0,18}$/, 'expected minor units: 1 to 19 digits without a leading zero');

const currency = z
  .string({ error: 'expected an ISO 4217 code' })
  .regex(/^[A-Z]{3}$/, 'expected an ISO 4217 code');

const order = {
  key: transferKey,
  amount,
  currency,
  beneficiary: z.object(
    {
      name: text(1, 200),
      country: z
        .string({ error: 'expected an ISO 3166 code' })
        .regex(/^[A-Z]{2}$/, 'expected an ISO 3166 code of two letters'),
      // The longest account identifier in use is a Pix key with 77 characters.
      account: text(1, 100),
      bank_code: text(1, 35).optional(),
      branch_code: text(1, 35).optional(),
      account_type: text(1, 35).optional(),
      tax_id: text(1, 35).optional(),
      date_of_birth: text(10, 10).optional(),
      registration_number: text(1, 35).optional(),
      // ISO 20022 allows 70 characters for a street, the longest part of an address.
      address: z.record(text(1, 20), text(1, 70)).optional(),
    },
    { error: 'expected an object' },
  ),
  // ISO 20022 allows 140. A little more, so that the bank decides and not this length check.
  remittance: text(0, 200),
};

/** A transfer order. */
export const transferOrder = z.object(order, { error: 'expected an object' });
export type TransferOrder = z.infer<typeof transferOrder>;

const reason = { code: z.string(), reason: z.string() };
const moved = {
  key: transferKey,
  amount,
  currency,
  bank_reference: z.string(),
  /** The ID of the callback event, stored so that a resend uses the same one. */
  event: z.string(),
};

const fact = z.discriminatedUnion('type', [
  /** Accepted: from now on the money is in transit. */
  z.object({ type: z.literal('transfer'), ...order, bank_reference: z.string() }),
  /** Rejected on submission, or after acceptance, in which case it has a reference and an event. */
  z.object({
    type: z.literal('rejected'),
    ...order,
    ...reason,
    bank_reference: z.string().optional(),
    event: z.string().optional(),
  }),
  z.object({ type: z.literal('settled'), ...moved }),
  z.object({ type: z.literal('returned'), ...moved, ...reason }),
  z.object({ type: z.literal('voided'), key: transferKey }),
  /** The service has answered 2xx to the callback with this event. */
  z.object({ type: z.literal('acknowledged'), key: transferKey, event: z.string() }),
]);

/** A fact recorded in the journal, with everything needed to rebuild the books. */
export type Fact = z.infer<typeof fact>;

/** A line of the journal: gapless `seq` from 1, `at` in ISO 8601 UTC. */
export const journalLine = z.intersection(
  z.object({ seq: z.number().int().positive(), at: z.iso.datetime() }),
  fact,
);
export type JournalLine = z.infer<typeof journalLine>;
