import { formatSum, max } from './money.js';
import { type Refusal, refuse } from './refusal.js';

/** The maximum amounts of a currency that an account may send. Null is no limit. */
export type Limits = Readonly<Record<'payoutMinor' | 'dayMinor' | 'monthMinor', bigint | null>> & {
  /** Restricts the limits to one corridor; null applies them to all destinations together. */
  readonly destination: string | null;
};

/** A limit with the amount used until it resets. The limit per payout is never used up. */
export type LimitUse = {
  readonly period: 'payout' | 'day' | 'month';
  readonly destination: string | null;
  readonly limitMinor: bigint;
  readonly usedMinor: bigint;
  readonly resetsAt: Date | null;
};

/** Limits with the amounts used per UTC day (such as 2026-11-23), in minor units as text for JSON. */
export type UsedLimits = Limits & { readonly uses: Readonly<Record<string, string>> };

/**
 * Returns the use of the limits of a currency and its corridors at a time. Limits that last longest come
 * first, because "try tomorrow" is wrong advice when the month is used up.
 */
export function limitUsesOf(all: readonly UsedLimits[], at: Date): readonly LimitUse[] {
  const [year, month, date] = [at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate()];
  const windows = [
    ['payout', 'payoutMinor', Number.POSITIVE_INFINITY, null],
    ['month', 'monthMinor', Date.UTC(year, month, 1), Date.UTC(year, month + 1, 1)],
    ['day', 'dayMinor', Date.UTC(year, month, date), Date.UTC(year, month, date + 1)],
  ] as const;
  return windows.flatMap(([period, name, firstMs, nextMs]) =>
    all.flatMap(({ [name]: limitMinor, destination, uses }) => {
      const counted = Object.entries(uses).filter(([day]) => Date.parse(day) >= firstMs);
      const usedMinor = counted.reduce((sum, [, minor]) => sum + BigInt(minor), 0n);
      const resetsAt = nextMs === null ? null : new Date(nextMs);
      return limitMinor === null ? [] : [{ period, destination, limitMinor, usedMinor, resetsAt }];
    }),
  );
}

/** The amount that a payout debits. */
type Debit = { readonly sourceCurrency: string; readonly sourceMinor: bigint };

/**
 * Refuses a payout that exceeds a limit of its currency or corridor. The refusal explains the exceeded limit
 * that lasts longest; its `expected` amount fits all limits, so that a payout of that amount passes.
 *
 * @param takenMinor the amounts used by earlier payouts of the same decision
 */
export function refuseOverLimit(
  limitUses: readonly LimitUse[],
  debit: Debit & { readonly destinationCurrency: string },
  takenMinor: Readonly<Record<'ofCurrency' | 'ofCorridor', bigint>>,
  param: string,
): Refusal | undefined {
  const { sourceCurrency, destinationCurrency, sourceMinor } = debit;
  const usedOf = ({ resetsAt, destination, usedMinor }: LimitUse) => {
    const taken = destination === null ? takenMinor.ofCurrency : takenMinor.ofCorridor;
    return resetsAt ? usedMinor + taken : 0n;
  };
  const leftOf = (each: LimitUse) => max(each.limitMinor - usedOf(each), 0n);
  const applying = limitUses.filter(
    ({ destination }) => destination === null || destination === destinationCurrency,
  );
  const over = applying.find((each) => sourceMinor > leftOf(each));
  if (over === undefined) return undefined;
  const amount = (minor: bigint) => formatSum(minor, sourceCurrency);
  const limitOf = ({ limitMinor, period, destination }: LimitUse) =>
    `${amount(limitMinor)} a ${period}${destination === null ? '' : ` to ${destination}`}`;
  const least = applying.reduce((found, each) => (leftOf(each) < leftOf(found) ? each : found));
  const rest = `${amount(leftOf(least))}, the remainder of the limit of ${limitOf(least)}`;
  const until = `${amount(leftOf(over))} is left until it resets at ${over.resetsAt?.toISOString()}`;
  const use = over.resetsAt ? `, of which ${amount(usedOf(over))} is used and ${until}` : '';
  const received = amount(sourceMinor);
  return refuse('limit_exceeded', {
    param,
    expected: `at most ${least.resetsAt ? rest : limitOf(least)}`,
    received,
    detail: `The limit is ${limitOf(over)}${use}; this payout needs ${received}.`,
    hint: over.resetsAt ? 'Send less, or wait until the limit resets.' : 'Send less.',
  });
}

/** A waiting period in hours for new beneficiary details; it applies to payouts above an amount. */
export type PayeeDelay = {
  readonly currency: string;
  readonly aboveMinor: bigint;
  readonly hours: number;
};

/** When a beneficiary's details last changed, and their age, both by the database's clock. */
export type PayeeDetails = { readonly since: Date; readonly ageMs: bigint };

/** Prints hours for use in sentences: "an hour", "24 hours". */
export function writtenHours(hours: number): string {
  return hours === 1 ? 'an hour' : `${hours} hours`;
}

/** Refuses a payout to beneficiary details that are still too new for its amount. */
export function refuseNewPayee(
  delays: readonly PayeeDelay[],
  { sourceCurrency, sourceMinor }: Debit,
  beneficiary: PayeeDetails | undefined,
  param: string,
): Refusal | undefined {
  const delay = delays.find(({ currency }) => currency === sourceCurrency);
  if (delay === undefined || beneficiary === undefined) return undefined;
  const { since, ageMs } = beneficiary;
  const waitMs = delay.hours * 60 * 60 * 1000;
  if (sourceMinor <= delay.aboveMinor || ageMs >= waitMs) return undefined;
  const amount = (minor: bigint) => formatSum(minor, sourceCurrency);
  const until = new Date(since.getTime() + waitMs).toISOString();
  const isNone = delay.aboveMinor === 0n;
  const old = writtenHours(delay.hours);
  const most = isNone ? 'no payout' : `at most ${amount(delay.aboveMinor)}`;
  return refuse('limit_exceeded', {
    param,
    expected: `${most} until ${until}`,
    received: amount(sourceMinor),
    detail: `The beneficiary was added or updated less than ${old} ago: until ${until} it can receive ${most}${isNone ? '' : ' a payout'}.`,
    hint: `${isNone ? 'Wait' : 'Send less, or wait'} until the beneficiary's details are ${old} old.`,
  });
}
