import currencies from './iso4217.json' with { type: 'json' };

/**
 * The active currencies of ISO 4217, list one, as of 17 September 2026 (amendment
 * 180 is the latest: BGN left on 1 January 2026; XCG stands for ANG, ZWG for ZWL,
 * and HRK, SLL and CUC are gone). `tools/iso4217.mjs` makes the table of a dated
 * list and what has changed since: package tables lag behind the amendments, and
 * `Intl` has other digits for some currencies (HUF, IDR, IQD, COP, MGA).
 *
 * Left out are funds codes, metals, units of account of institutions, and the
 * codes for testing and for no currency: nobody can be paid in them. CLF and UYW
 * stay because they are what their countries state contracts in, and their four
 * digits are the widest that exist.
 */

/** One currency: `digits` is how many decimal places its minor unit stands for. */
type CurrencyEntry = { readonly digits: number; readonly name: string };

/** Every active currency by its three-letter code. */
export const iso4217: ReadonlyMap<string, CurrencyEntry> = new Map(Object.entries(currencies));
