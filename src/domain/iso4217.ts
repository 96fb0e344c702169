import currencies from './iso4217.json' with { type: 'json' };

/**
 * The active currencies of ISO 4217, list one, as of 17 September 2026. The latest amendment is 180: BGN
 * was removed on 1 January 2026, XCG replaced ANG, ZWG replaced ZWL, and HRK, SLL and CUC are gone.
 * `tools/iso4217.mjs` generates the table from a dated list and the changes since. Tables in packages lag
 * behind the amendments, and `Intl` has other digits for some currencies (HUF, IDR, IQD, COP, MGA).
 *
 * Excluded are funds codes, metals, institutional units of account, and the codes for testing and for no
 * currency, because nobody can be paid in them. CLF and UYW are included because contracts in their
 * countries are denominated in them; their four decimal digits are the most that exist.
 */

/** One currency. `digits` is the number of decimal places of its minor unit. */
type CurrencyEntry = { readonly digits: number; readonly name: string };

/** The active currencies by three-letter code. */
export const iso4217: ReadonlyMap<string, CurrencyEntry> = new Map(Object.entries(currencies));
