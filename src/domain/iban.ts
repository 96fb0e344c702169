import { countrySpecs } from 'ibantools';
import { isAlbanianBank, isCin, isLuhn, mod97 } from './checkDigits.js';
import { digitOf } from './fieldRule.js';
import registry from './ibanRegistry.json' with { type: 'json' };
import issuers from './ibanTerritories.json' with { type: 'json' };
import { isAccountAt } from './modulusCheck.js';

/**
 * The SWIFT IBAN registry (ISO 13616), release 101: for each country the layout of the part after the
 * check digits, and the registry's example. We keep our own table because that of ibantools refuses valid
 * accounts of PK, PS, BY and DO, and does not mark BI, DJ, FK and HN as registered.
 */
const registered = new Map(Object.entries(registry));

// Territories whose accounts have IBANs with the code of another country (SWIFT IBAN registry,
// "country code includes other countries/territories").
const territories: ReadonlyMap<string, string> = new Map(Object.entries(issuers));

/** Countries and territories whose accounts have an IBAN. */
export const ibanCountries: ReadonlySet<string> = new Set([
  ...registered.keys(),
  ...territories.keys(),
]);

/** Returns the country code that a country's IBANs start with: the issuer. */
export function ibanIssuer(country: string): string {
  return territories.get(country) ?? country;
}

/** Returns the registry's example IBAN of an issuer. */
export function ibanExample(issuer: string): string {
  return registered.get(issuer)?.example ?? '';
}

const characters: Readonly<Record<string, string>> = { n: '[0-9]', a: '[A-Z]', c: '[A-Z0-9]' };

/** Returns the parts of an issuer's account number. In the registry, `4!n` means four digits. */
function partsOf(issuer: string) {
  const layout = registered.get(issuer)?.layout ?? '';
  return [...layout.matchAll(/(\d+)!([nac])/g)].map(([, length = '', kind = '']) => ({
    length: Number.parseInt(length, 10),
    kind,
  }));
}

/** Returns the layout of an issuer's IBAN as a regular expression. */
export function ibanPattern(issuer: string): string {
  const parts = partsOf(issuer).map(({ length, kind }) => `${characters[kind]}{${length}}`);
  return `^${issuer}[0-9]{2}${parts.join('')}$`;
}

// Checks of national check digits (inside the account number) that ibantools lacks. A test runs them on
// the registry's examples.
const nationalChecks: Readonly<Record<string, (bban: string) => boolean>> = {
  AL: isAlbanianBank,
  FI: isLuhn,
  GB: (bban) => isAccountAt(bban.slice(4, 10), bban.slice(10)),
  IT: isCin,
  MR: (bban) => mod97(bban) === 0n,
  SM: isCin,
  TL: (bban) => mod97(bban) === 1n,
  TN: (bban) => mod97(bban) === 0n,
};

type IbanFault = 'length' | 'letter' | 'layout' | 'check' | 'national_check';

/** Replaces letters that look like digits by those digits, in positions where the layout has digits. */
function withDigits(iban: string, issuer: string): string {
  const places = `aann${partsOf(issuer)
    .map(({ length, kind }) => kind.repeat(length))
    .join('')}`;
  return Array.from(iban, (character, at) =>
    places[at] === 'n' ? (digitOf[character] ?? character) : character,
  ).join('');
}

/** Returns the fault of an IBAN that starts with its issuer, or undefined if the IBAN is valid. */
export function ibanFault(iban: string, issuer: string): IbanFault | undefined {
  if (iban.length !== ibanExample(issuer).length) return 'length';
  if (!new RegExp(ibanPattern(issuer)).test(iban)) {
    const read = withDigits(iban, issuer);
    return read !== iban && ibanFault(read, issuer) === undefined ? 'letter' : 'layout';
  }
  const bban = iban.slice(4);
  if (mod97(bban + iban.slice(0, 4)) !== 1n) return 'check';
  const isRight = nationalChecks[issuer] ?? countrySpecs[issuer]?.bban_validation_func;
  return isRight === undefined || isRight(bban) ? undefined : 'national_check';
}
