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
const terms: readonly (readonly [string, fixed: bigint, minimum: bigint, spread: number])[] = [
  ['USD', 30n, 100n, 50],
  ['EUR', 30n, 100n, 50],
  ['GBP', 25n, 80n, 50],
  ['JPY', 45n, 150n, 50],
  ['CZK', 600n, 2_000n, 70],
  ['DKK', 200n, 650n, 60],
  ['HUF', 10_000n, 33_000n, 80],
  ['PLN', 110n, 360n, 70],
  ['RON', 130n, 440n, 80],
  ['SEK', 280n, 950n, 60],
  ['CHF', 25n, 80n, 50],
  ['ISK', 40n, 125n, 100],
  ['NOK', 300n, 1_000n, 60],
  ['TRY', 1_400n, 4_600n, 150],
  ['AUD', 45n, 150n, 50],
  ['BRL', 160n, 530n, 100],
  ['CAD', 40n, 140n, 50],
  ['CNY', 210n, 700n, 80],
  ['HKD', 230n, 780n, 60],
  ['IDR', 500_000n, 1_700_000n, 100],
  ['ILS', 100n, 330n, 80],
  ['INR', 2_700n, 9_000n, 90],
  ['KRW', 440n, 1_500n, 80],
  ['MXN', 550n, 1_850n, 80],
  ['MYR', 125n, 415n, 90],
  ['NZD', 55n, 175n, 60],
  ['PHP', 1_750n, 5_900n, 90],
  ['SGD', 40n, 130n, 60],
  ['THB', 970n, 3_200n, 80],
  ['ZAR', 520n, 1_700n, 100],
  ['KWD', 95n, 310n, 80],
  ['AED', 110n, 370n, 70],
  ['SAR', 110n, 375n, 70],
];

const currencies = new Map(
  terms.map(([code, fixedMinor, minimumMinor, spread]) => [
    code,
    { fee: { fixedMinor, minimumMinor, basisPoints: 40 }, spread },
  ]),
);

// One payout is at most a million times the smallest fee, which is about a
// million US dollars in every currency and stays below the API's 10^14.
const maximumInFees = 1_000_000n;

/** Every currency that can be a source or a destination, in the order of the table. */
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
  return refuse('corridor_unavailable', { detail: `No rail takes ${mode} payouts here.` });
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
