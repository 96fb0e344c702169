import { z } from 'zod';
import { nameOnStatement } from '../../domain/beneficiary.js';
import { orderCancelled } from '../../domain/factEffect.js';
import type { RailEvent, RailReport, Statement } from '../../domain/railReport.js';
import type { LookupAnswer, SubmitAnswer, Transfer } from '../rail.js';

/** The name of the rail in the rows of payouts. */
export const sandboxName = 'sandbox';

// The schemas below check the sandbox bank's answers before any of their content is used.

/** An amount in minor units as text. */
const minorText = z.string().regex(/^\d{1,19}$/);
/** Text that PostgreSQL can store: without U+0000 and without half a surrogate pair. */
const storable = z.string().regex(/^[^\0\p{Surrogate}]*$/u);
/** Text shown to people. Control characters could fake another line. ISO 20022 allows only 35 characters. */
const shownText = storable.transform((text) => text.slice(0, 140).replace(/\p{C}/gu, '?'));
/** An ISO 20022 code. Any other text is replaced by NARR, because it may contain personal data. */
const reasonCode = z.string().transform((code) => (/^[A-Z0-9]{1,4}$/.test(code) ? code : 'NARR'));

/** Times beyond the year 9999, which an offset can lead to, are printed in a form that PostgreSQL cannot read. */
const storableTime = z.iso
  .datetime({ offset: true })
  .refine((text) => Date.parse(text) > 0 && Date.parse(text) < Date.UTC(10_000))
  // Converted to UTC because PostgreSQL accepts fewer offsets than ISO 8601.
  .transform((text) => new Date(text).toISOString());

/** An optional time. An invalid time counts as missing, so that the rest can still be read. */
const bankTime = storableTime.optional().catch(undefined);

export const submitAnswer = z
  .discriminatedUnion('outcome', [
    z.object({ key: storable, outcome: z.literal('accepted'), bank_reference: shownText }),
    z.object({ key: storable, outcome: z.literal('rejected'), code: reasonCode }),
    z.object({ key: storable, outcome: z.literal('unknown') }),
  ])
  .transform((answer): SubmitAnswer => {
    const { key } = answer;
    switch (answer.outcome) {
      case 'accepted':
        return { key, kind: 'accepted', reference: answer.bank_reference };
      case 'rejected':
        if (answer.code === orderCancelled) return { key, kind: 'voided' };
        return { key, kind: 'rejected', code: answer.code };
      case 'unknown':
        return { key, kind: 'unknown', detail: 'the bank answered "unknown"' };
    }
  });

/** Parses a list of results and drops invalid ones: the others are still valid answers. */
function readable<T>(result: z.ZodType<T>) {
  const check = z.array(z.unknown()).max(10_000);
  return check.transform((results) =>
    results.flatMap((each) => {
      const parsed = result.safeParse(each);
      return parsed.success ? [parsed.data] : [];
    }),
  );
}

export const bulkAnswer = z.object({ results: readable(submitAnswer) });

/** The fields that look-up results and callback events have in common. */
const reported = z.object({
  amount: minorText.optional(),
  currency: storable.optional(),
  code: reasonCode.optional(),
  at: bankTime,
});

const lookupResult = reported
  .extend({
    key: storable,
    state: z.enum(['accepted', 'rejected', 'settled', 'returned', 'voided', 'not_found']),
    returned_amount: minorText.optional(),
    bank_reference: shownText.optional(),
  })
  .transform(({ key, state, ...result }): LookupAnswer => {
    if (state === 'voided' || state === 'not_found') return { key, kind: state };
    const amount = (state === 'returned' ? result.returned_amount : undefined) ?? result.amount;
    return { key, ...reportOf(state, { ...result, amount }) };
  });
export const lookupAnswer = z.object({ results: readable(lookupResult) });
export const voidAnswer = z.object({ outcome: z.enum(['voided', 'too_late']) });

/** The amount of a statement line: above zero and within PostgreSQL's `bigint`. */
const movedMinor = minorText.transform(BigInt).refine((minor) => minor > 0n && minor < 2n ** 63n);

const statementLine = z
  .object({
    key: shownText,
    bank_reference: shownText,
    direction: z.enum(['debit', 'credit']),
    amount: movedMinor,
    currency: shownText,
    at: storableTime,
  })
  .transform(({ bank_reference: bankReference, amount: amountMinor, at: bookedAt, ...line }) => ({
    ...line,
    ...{ bankReference, amountMinor, bookedAt },
  }));

/** A sum in minor units as text, of any number of lines. */
const totalMinor = z.string().regex(/^\d{1,30}$/);
const totals = z.record(z.string(), z.object({ debits: totalMinor, credits: totalMinor }));

/** The statement of a day. One of another day, or cut short, would prove that an order was not paid. */
export const statementAnswer = (date: string) =>
  z
    .object({ date: z.literal(date), closed: z.boolean(), entries: z.array(statementLine), totals })
    .transform(({ entries, ...day }) => ({ ...day, lines: entries }))
    .refine(isWhole, { error: 'The lines do not add up to the totals.' });

/** Whether the lines add up to the totals of each currency. If not, the bank has left some out. */
function isWhole(day: Statement & { readonly totals: z.infer<typeof totals> }): boolean {
  const missing = new Map<string, bigint>();
  for (const [currency, { debits, credits }] of Object.entries(day.totals)) {
    missing.set(`${currency} debit`, BigInt(debits)).set(`${currency} credit`, BigInt(credits));
  }
  for (const { currency, direction, amountMinor } of day.lines) {
    const side = `${currency} ${direction}`;
    missing.set(side, (missing.get(side) ?? 0n) - amountMinor);
  }
  return [...missing.values()].every((minor) => minor === 0n);
}

const callbackEvent = reported
  .extend({
    id: storable.min(1).max(200),
    key: storable.min(1).max(200),
    type: z.enum(['settled', 'rejected', 'returned']),
    amount: minorText,
    currency: z.string().regex(/^[A-Z]{3}$/),
  })
  .transform(
    ({ id, key, type, ...event }): RailEvent => ({ id, key, report: reportOf(type, event) }),
  );

export const callbackBody = z.object({ events: z.array(callbackEvent).max(500) });

/** Converts a transfer to the bank's format, which has the same account and bank fields for all countries. */
export function transferBody({ beneficiary, ...transfer }: Transfer): object {
  return {
    key: transfer.key,
    amount: transfer.amountMinor.toString(),
    currency: transfer.currency,
    beneficiary: {
      name: nameOnStatement(beneficiary),
      country: beneficiary.country,
      account: beneficiary.iban ?? beneficiary.account_number ?? beneficiary.pix_key ?? '',
      bank_code: beneficiary.bic ?? beneficiary.routing_number ?? beneficiary.bank_code,
      branch_code: beneficiary.branch_code,
      account_type: beneficiary.account_type,
      tax_id: beneficiary.tax_id,
      date_of_birth: beneficiary.date_of_birth,
      registration_number: beneficiary.registration_number,
      address: beneficiary.address,
    },
    remittance: transfer.remittance,
  };
}

type Details = z.infer<typeof reported> & { readonly bank_reference?: string | undefined };

/** Converts the bank's report from a look-up or callback to the service's form. */
function reportOf(kind: RailReport['kind'], details: Details): RailReport {
  const { amount = '0', currency = '', code = 'NARR', at, bank_reference = '' } = details;
  const sum = { amountMinor: BigInt(amount), currency };
  if (kind === 'accepted') return { kind, reference: bank_reference };
  const isStated = details.amount !== undefined && details.currency !== undefined;
  if (kind === 'rejected') return isStated ? { kind, ...sum, code } : { kind, code };
  return kind === 'settled' ? { kind, ...sum, at } : { kind, ...sum, code };
}
