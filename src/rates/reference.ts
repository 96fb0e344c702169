import type { RateSource } from './rateSource.js';
import figures from './reference.json' with { type: 'json' };

// Illustrative mid rates of about 20 November 2026, units for one euro. They are
// written by hand so that a fresh checkout can quote at once: not a market feed,
// and not to be used for real money. AED and SAR keep their pegs to the US dollar.
const perEuro: ReadonlyMap<string, string> = new Map(Object.entries(figures));

/**
 * The table that is shipped with the project. It is as of the moment it is read,
 * because a fixed table holds whenever it is read; how old its figures are is in
 * the provider's name.
 */
export const referenceSource: RateSource = {
  provider: 'corridor-reference-2026-11-20',
  isForTests: true,
  fetch: async () => ({ asOf: new Date(), perEuro }),
};
