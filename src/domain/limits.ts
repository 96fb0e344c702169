import { formatSum, max } from './money.js';
import { type Refusal, refuse } from './refusal.js';

/** What an account may send of a currency at most; null is no limit. */
export type Limits = Readonly<Record<'payoutMinor' | 'dayMinor' | 'monthMinor', bigint | null>> & {
  /** Of one corridor alone; null is any destination. */
  readonly destination: string | null;
};

/** A limit with what of it is used, until it resets; nothing uses up the limit for one payout. */
export type LimitUse = {
  readonly period: 'payout' | 'day' | 'month';
  readonly destination: string | null;
  readonly limitMinor: bigint;
  readonly usedMinor: bigint;
  readonly resetsAt: Date | null;
};

/** Limits with their uses: minor units, as text for JSON, by their day in UTC, such as 2026-11-23. */
export type UsedLimits = Limits & { readonly uses: Readonly<Record<string, string>> };

/**
 * Where the limits of a currency and of its corridors stand at a time. The longest-lasting
 * comes first: 'try tomorrow' is wrong when the month is used up.
 */
export function standingsOf(all: readonly UsedLimits[], at: Date): readonly LimitUse[] {
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

/** What a payout takes from its balance. */
type Debit = { readonly sourceCurrency: string; readonly sourceMinor: bigint };

/**
 * Why a payout does not fit the limits of its currency or corridor. The limit that lasts longest is
 * explained, and what is expected fits all of them: who sends that much is not refused by the next one.
 *
 * @param takenMinor what payouts before it in the same decision use as well
 */
export function refuseOverLimit(
  standings: readonly LimitUse[],
  {
    sourceCurrency,
    destinationCurrency,
    sourceMinor,
  }: Debit & { readonly destinationCurrency: string },
  takenMinor: Readonly<Record<'ofCurrency' | 'ofCorridor', bigint>>,
  param: string,
): Refusal | undefined {
  const usedOf = ({ resetsAt, destination, usedMinor }: LimitUse) => {
    const taken = destination === null ? takenMinor.ofCurrency : takenMinor.ofCorridor;
    return resetsAt ? usedMinor + taken : 0n;
  };
  const leftOf = (each: LimitUse) => max(each.limitMinor - usedOf(each), 0n);
  const applying = standings.filter(
    ({ destination }) => destination === null || destination === destinationCurrency,
  );
  const over = applying.find((each) => sourceMinor > leftOf(each));
  if (over === undefined) return undefined;
  const amount = (minor: bigint) => formatSum(minor, sourceCurrency);
  const limitOf = ({ limitMinor, period, destination }: LimitUse) =>
    `${amount(limitMinor)} a ${period}${destination === null ? '' : ` to ${destination}`}`;
  const least = applying.reduce((found, each) => (leftOf(each) < leftOf(found) ? each : found));
  const rest = `${amount(leftOf(least))}, what is left of the limit of ${limitOf(least)}`;
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

/** Above a sum of its source currency, in minor units, a payout goes only to details of some age. */
export type PayeeDelay = {
  readonly currency: string;
  readonly aboveMinor: bigint;
  readonly hours: number;
};

/** A beneficiary's present details: since when they are what they are, by the database's clock. */
export type PayeeDetails = { readonly since: Date; readonly ageMs: bigint };

/** Why a payout does not go to details that are new. */
export function refuseNewPayee(
  delays: readonly PayeeDelay[],
  { sourceCurrency, sourceMinor }: Debit,
  { since, ageMs }: PayeeDetails,
  param: string,
): Refusal | undefined {
  const delay = delays.find(({ currency }) => currency === sourceCurrency);
  const waitMs = (delay?.hours ?? 0) * 60 * 60 * 1000;
  if (delay === undefined || sourceMinor <= delay.aboveMinor || ageMs >= waitMs) return undefined;
  const amount = (minor: bigint) => formatSum(minor, sourceCurrency);
  const until = new Date(since.getTime() + waitMs).toISOString();
  const hours = delay.hours === 1 ? 'an hour' : `${delay.hours} hours`;
  const isNone = delay.aboveMinor === 0n;
  const most = isNone ? 'no payout' : `at most ${amount(delay.aboveMinor)}`;
  return refuse('limit_exceeded', {
    param,
    expected: `${most} until ${until}`,
    received: amount(sourceMinor),
    detail: `The beneficiary was added or updated less than ${hours} ago: until ${until} it receives ${most}${isNone ? '' : ' a payout'}.`,
    hint: isNone ? 'Wait until then.' : 'Send less, or wait until then.',
  });
}
