import type { Sum } from './money.js';

/**
 * A rail's report about one order. Answers to submissions, answers to look-ups and callbacks are all parsed
 * into this form, and stored and applied in it. Amounts are minor units of `currency`; codes are ISO 20022
 * external status reasons. What a report does to a payout is decided by `effectOf` in domain/factEffect.ts.
 */
export type RailReport =
  | { readonly kind: 'accepted'; readonly reference: string | null }
  /** `at` is by the rail's clock, ISO 8601; undefined if the rail stated no time. */
  | (Sum & { readonly kind: 'settled'; readonly at?: string | undefined })
  | { readonly kind: 'rejected'; readonly code: string }
  /** A rejection states the order's sum in look-ups and callbacks, and none in the answer to a submission. */
  | (Sum & { readonly kind: 'rejected'; readonly code: string })
  | (Sum & { readonly kind: 'returned'; readonly code: string });

/** A report that the rail pushes to us, with the rail's id of the event and the order's key. */
export type RailEvent = { readonly id: string; readonly key: string; readonly report: RailReport };

/** One line of a rail's statement. A debit is a payment, a credit is a return. */
export type StatementLine = Sum & {
  readonly key: string;
  readonly bankReference: string;
  readonly direction: 'debit' | 'credit';
  /** ISO 8601. */
  readonly bookedAt: string;
};

/** A rail's statement for one day. It is `closed` when no more lines will be added. */
export type Statement = { readonly closed: boolean; readonly lines: readonly StatementLine[] };

type Stored<Report> = Report extends { readonly amountMinor: bigint }
  ? Omit<Report, 'amountMinor'> & { readonly amountMinor: string }
  : Report;

/** A report as stored. JSON has no bigint, so amounts are decimal strings. */
export type RailReportJson = Stored<RailReport>;

export function reportToJson(report: RailReport): RailReportJson {
  if (!('amountMinor' in report)) return report;
  return { ...report, amountMinor: report.amountMinor.toString() };
}

export function reportFromJson(json: RailReportJson): RailReport {
  if (!('amountMinor' in json)) return json;
  return { ...json, amountMinor: BigInt(json.amountMinor) };
}
