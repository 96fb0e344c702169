/**
 * What a rail says of one order: the only form in which an answer to a submission, a look-up and a
 * callback are read, stored and applied. Amounts are minor units of `currency`; codes are ISO
 * 20022 external status reasons.
 */
export type RailReport =
  | { readonly kind: 'accepted'; readonly reference: string | null }
  | {
      readonly kind: 'settled';
      readonly amountMinor: bigint;
      readonly currency: string;
      /** By the rail's clock, ISO 8601; undefined where it states none. */
      readonly at?: string | undefined;
    }
  | { readonly kind: 'rejected'; readonly code: string }
  | {
      readonly kind: 'returned';
      readonly amountMinor: bigint;
      readonly currency: string;
      readonly code: string;
    };

/** A report that the rail sends by itself, with its own id of the event and the order's key. */
export type RailEvent = { readonly id: string; readonly key: string; readonly report: RailReport };

/** One line of a rail's statement: a debit paid, a credit came back. */
export type StatementLine = {
  readonly key: string;
  readonly bankReference: string;
  readonly direction: 'debit' | 'credit';
  readonly amountMinor: bigint;
  readonly currency: string;
  /** ISO 8601. */
  readonly bookedAt: string;
};

/** A day of a rail's statement; `closed` when nothing will be added to it. */
export type Statement = { readonly closed: boolean; readonly lines: readonly StatementLine[] };

type Stored<Report> = Report extends { readonly amountMinor: bigint }
  ? Omit<Report, 'amountMinor'> & { readonly amountMinor: string }
  : Report;

/** A report as it is stored: JSON has no bigint, so amounts are their digits. */
export type RailReportJson = Stored<RailReport>;

export function reportToJson(report: RailReport): RailReportJson {
  if (!('amountMinor' in report)) return report;
  return { ...report, amountMinor: report.amountMinor.toString() };
}

export function reportFromJson(json: RailReportJson): RailReport {
  if (!('amountMinor' in json)) return json;
  return { ...json, amountMinor: BigInt(json.amountMinor) };
}
