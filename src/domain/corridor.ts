import currencies from './corridorCurrencies.json' with { type: 'json' };
import { divideUp, max } from './money.js';
import { type Refusal, refuse } from './refusal.js';

/**
 * The fee of a payout, in minor units of its source currency:
 * max(minimum, fixed + basis points × amount). `basisPoints` is below 10,000.
 */
export type FeeSchedule = {
  readonly fixedMinor: bigint;
  readonly basisPoints: number;
  readonly minimumMinor: bigint;
};

/**
 * The terms of a currency during some period: the fee of payouts from it, and the spread deducted from the
 * mid rate of payouts from or to it. `maximumMinor` is the maximum amount of one payout from the currency;
 * `id` identifies the terms.
 */
export type Terms = FeeSchedule & {
  readonly id: bigint;
  readonly currency: string;
  readonly maximumMinor: bigint;
  readonly spreadBasisPoints: number;
};

/** A source and destination currency with fee, limit and rail. `railNameOf` decides who may use the rail. */
export type Corridor = {
  readonly source: string;
  readonly destination: string;
  readonly fee: FeeSchedule;
  readonly feeTermsId: bigint;
  readonly spreadBasisPoints: number;
  readonly spreadTermsId: bigint | null;
  /** Maximum amount of one payout, in minor units of the source currency. */
  readonly maximumMinor: bigint;
  /** The rail that lists show; `railNameOf` decides which one a payout takes. */
  readonly rail: 'sandbox';
};

/** Returns every currency that can be a source or a destination. The database has terms for each. */
export function corridorCurrencies(): readonly string[] {
  return currencies;
}

/**
 * Returns the corridor from one currency to another on these terms, or `undefined` if either is not
 * served. The wider spread of the two applies; within one currency there is no spread.
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

/** Rule that closes or opens the corridors from a currency, to one, or between two. Null is any currency. */
export type Opening = {
  readonly source: string | null;
  readonly destination: string | null;
  readonly isOpen: boolean;
};

/**
 * Refuses a payout through a closed corridor. Any closing rule that matches is enough, so that opening
 * one pair does not accidentally open a corridor that somebody else has closed by a wider rule.
 *
 * @param openings the latest rule of each pair
 */
export function refuseClosed(
  openings: readonly Opening[],
  source: string,
  destination: string,
  param: 'destination_currency' | 'quote' = 'destination_currency',
): Refusal | undefined {
  const closing = openings.filter(
    ({ isOpen, ...each }) =>
      !isOpen &&
      (each.source ?? source) === source &&
      (each.destination ?? destination) === destination,
  );
  if (closing.length === 0) return undefined;
  // If no destination would help, the request has to name another source.
  const isOfSource = closing.some((rule) => rule.source !== null && rule.destination === null);
  return refuse('corridor_unavailable', {
    param: isOfSource && param !== 'quote' ? 'source_currency' : param,
    expected: 'a corridor that is open',
    received: `${source} to ${destination}`,
    detail: `Payouts from ${source} to ${destination} are not accepted at present. GET /v1/corridors lists the open corridors.`,
  });
}

/** Returns the rail of payouts in a mode. Test accounts use only the sandbox bank, live accounts never do. */
export function railNameOf(mode: 'test' | 'live'): 'sandbox' | undefined {
  return mode === 'test' ? 'sandbox' : undefined;
}

/** Returns the refusal of a payout whose mode has no rail. */
export function refuseUnroutable(mode: 'test' | 'live'): Refusal {
  return refuse('corridor_unavailable', { hint: `No bank is connected for ${mode} accounts.` });
}

/** Returns the fee of an amount of zero or more, in minor units of the source currency, rounded up. */
export function feeFor(amountMinor: bigint, schedule: FeeSchedule): bigint {
  const fee = schedule.fixedMinor + divideUp(amountMinor * BigInt(schedule.basisPoints), 10_000n);
  return max(fee, schedule.minimumMinor);
}

/**
 * Returns the smallest amount that leaves at least `netMinor` after its fee, in closed form: with
 * s = basis points ÷ 10,000, amount − ⌈s × amount⌉ equals ⌊(1 − s) × amount⌋, so both branches of the
 * fee can be inverted.
 */
export function grossFor(netMinor: bigint, schedule: FeeSchedule): bigint {
  const keptBasisPoints = BigInt(10_000 - schedule.basisPoints);
  const atMinimum = netMinor + schedule.minimumMinor;
  const aboveMinimum = divideUp((netMinor + schedule.fixedMinor) * 10_000n, keptBasisPoints);
  return max(atMinimum, aboveMinimum);
}
