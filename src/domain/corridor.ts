import terms from './corridorTerms.json' with { type: 'json' };
import { divideUp, max } from './money.js';
import { type Refusal, refuse } from './refusal.js';

/**
 * What a payout costs, in minor units of its source currency:
 * max(minimum, fixed + basis points × amount). `basisPoints` is below 10,000.
 */
export type FeeSchedule = {
  readonly fixedMinor: bigint;
  readonly basisPoints: number;
  readonly minimumMinor: bigint;
};

/** One way money can go: its fee, its limit and its rail, which `railNameOf` opens to an account. */
export type Corridor = {
  readonly source: string;
  readonly destination: string;
  readonly fee: FeeSchedule;
  readonly spreadBasisPoints: number;
  /** The largest amount of one payout, in minor units of the source currency. */
  readonly maximumMinor: bigint;
  readonly rail: 'sandbox';
};

// Each currency that can be sent and received: the fixed part of the fee and the
// smallest fee in its own minor units (about 0.30 and 1.00 US dollars, rounded to
// what people would print), and its spread in basis points, which is wider where
// the market is thinner.
const currencies = new Map(
  Object.entries(terms).map(([code, { fixedMinor, minimumMinor, spread }]) => {
    const minor = { fixedMinor: BigInt(fixedMinor), minimumMinor: BigInt(minimumMinor) };
    return [code, { fee: { ...minor, basisPoints: 40 }, spread }];
  }),
);

// One payout is at most a million times the smallest fee, which is about a
// million US dollars in every currency and stays below the API's 10^14.
const maximumInFees = 1_000_000n;

/** Every currency that can be a source or a destination, in the order of the file. */
export function corridorCurrencies(): readonly string[] {
  return [...currencies.keys()];
}

/**
 * The corridor from one currency to another, or `undefined` when either is not
 * served. The wider spread of the two applies; within one currency there is none.
 */
export function findCorridor(source: string, destination: string): Corridor | undefined {
  const from = currencies.get(source);
  const to = currencies.get(destination);
  if (from === undefined || to === undefined) return undefined;
  return {
    source,
    destination,
    fee: from.fee,
    spreadBasisPoints: source === destination ? 0 : Math.max(from.spread, to.spread),
    maximumMinor: from.fee.minimumMinor * maximumInFees,
    rail: 'sandbox',
  };
}

/** Which rail takes a payout: a test account reaches only the sandbox bank, a live one never does. */
export function railNameOf(mode: 'test' | 'live'): 'sandbox' | undefined {
  return mode === 'test' ? 'sandbox' : undefined;
}

/** Why nothing of an account in this mode can be sent. */
export function refuseUnroutable(mode: 'test' | 'live'): Refusal {
  return refuse('corridor_unavailable', { hint: `No rail takes ${mode} payouts here.` });
}

/** The fee of an amount of zero or more, in source minor units, rounded up to whole ones. */
export function feeFor(amountMinor: bigint, schedule: FeeSchedule): bigint {
  const share = divideUp(amountMinor * BigInt(schedule.basisPoints), 10_000n);
  const fee = schedule.fixedMinor + share;
  return max(fee, schedule.minimumMinor);
}

/**
 * The smallest amount that leaves at least `netMinor` once its fee is taken, in
 * closed form: with s = basis points ÷ 10,000, amount − ⌈s × amount⌉ is
 * ⌊(1 − s) × amount⌋, so each of the two branches of the fee can be inverted.
 */
export function grossFor(netMinor: bigint, schedule: FeeSchedule): bigint {
  const keptBasisPoints = BigInt(10_000 - schedule.basisPoints);
  const atMinimum = netMinor + schedule.minimumMinor;
  const aboveMinimum = divideUp((netMinor + schedule.fixedMinor) * 10_000n, keptBasisPoints);
  return max(atMinimum, aboveMinimum);
}
