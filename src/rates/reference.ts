import type { RateSource } from './rateSource.js';
import figures from './reference.json' with { type: 'json' };

// Illustrative mid rates of about 20 November 2026, in units per euro. They were
// entered by hand so that a fresh checkout can quote at once. They are not a market feed
// and must not be used for real money. AED and SAR keep their pegs to the US dollar.
const perEuro: ReadonlyMap<string, string> = new Map(Object.entries(figures));

/**
 * The rate table shipped with the project. `asOf` is always the current time, because
 * a fixed table never goes out of date. The provider's name shows the date of the
 * figures.
 */
export const referenceSource: RateSource = {
  provider: 'corridor-reference-2026-11-20',
  isForTests: true,
  fetch: async () => ({ asOf: new Date(), perEuro }),
};
