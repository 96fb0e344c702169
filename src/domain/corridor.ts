import currencies from './corridorCurrencies.json' with { type: 'json' };
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

/**
 * What a payout from a currency costs, and the spread taken off the mid rate of one from or to it, in
 * force for some time. `maximumMinor` is the largest amount of one payout from it; `id` names them.
 */
export type Terms = FeeSchedule & {
  readonly id: bigint;
  readonly currency: string;
  readonly maximumMinor: bigint;
  readonly spreadBasisPoints: number;
};

/** One way money can go: its fee, its limit and its rail, which `railNameOf` opens to an account. */
export type Corridor = {
  readonly source: string;
  readonly destination: string;
  readonly fee: FeeSchedule;
  readonly feeTermsId: bigint;
  readonly spreadBasisPoints: number;
  readonly spreadTermsId: bigint | null;
  /** The largest amount of one payout, in minor units of the source currency. */
  readonly maximumMinor: bigint;
  readonly rail: 'sandbox';
};

/** Every currency that can be a source or a destination; the database has terms of each. */
export function corridorCurrencies(): readonly string[] {
  return currencies;
}

/**
 * The corridor from one currency to another on these terms, or `undefined` when either is not
 * served. The wider spread of the two applies; within one currency there is none.
 */
export function corridorOf(
  terms: readonly Terms[],
  source: string,
  destination: string,
): Corridor | undefined {
  const from = terms.find(({ currency }) => currency === source);
  const to = terms.find(({ currency }) => currency === destination);
  if (from === undefined || to === undefined) return undefined;
  const wider = to.spreadBasisPoints > from.spreadBasisPoints ? to : from;
  const isExchange = source !== destination;
  return {
    source,
    destination,
    fee: from,
    feeTermsId: from.id,
    spreadBasisPoints: isExchange ? wider.spreadBasisPoints : 0,
    spreadTermsId: isExchange ? wider.id : null,
    maximumMinor: from.maximumMinor,
    rail: 'sandbox',
  };
}

/** Closes or opens the corridors from a currency, to one, or between two; null is any currency. */
export type Opening = {
  readonly source: string | null;
  readonly destination: string | null;
  readonly isOpen: boolean;
};

/**
 * Why a payout may not go through a corridor. Each rule that closes it counts, so that what one person
 * has closed for a reason no other opens by chance.
 *
 * @param openings the last rule of each pair
 */
export function refuseClosed(
  openings: readonly Opening[],
  source: string,
  destination: string,
  param: 'destination_currency' | 'quote' = 'destination_currency',
): Refusal | undefined {
  const isClosed = openings.some(
    ({ isOpen, ...each }) =>
      !isOpen &&
      (each.source ?? source) === source &&
      (each.destination ?? destination) === destination,
  );
  if (!isClosed) return undefined;
  return refuse('corridor_unavailable', {
    param,
    expected: 'a corridor that is open',
    received: `${source} to ${destination}`,
    hint: 'GET /v1/corridors lists those that are open.',
  });
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
