import tables from './latinLetters.json' with { type: 'json' };

/** What ISO 20022 payments and SEPA allow everywhere (EPC217-08). */
const allowed = /^[A-Za-z0-9/?:().,'+ -]$/;

const international: ReadonlyMap<string, string> = new Map(Object.entries(tables.letters));
const national: ReadonlyMap<string, ReadonlyMap<string, string>> = new Map(
  Object.entries(tables.national).map(([country, letters]) => [
    country,
    new Map(Object.entries(letters)),
  ]),
);

/**
 * A text in the letters and signs that every rail accepts, by the tables that latinLetters.json names
 * with their sources: no library of transliteration follows that of the EPC. What has no table, such
 * as Chinese and Arabic, is not guessed: the bank may have another spelling.
 *
 * @param country ISO 3166-1, as German umlauts and Cyrillic are not written alike everywhere
 * @returns undefined when a letter has no table, and when no letter or digit is left of the text
 */
export function latinText(text: string, country: string): string | undefined {
  const own = national.get(country);
  const letterOf = (small: string) => own?.get(small) ?? international.get(small);
  // A letter of the table stays whole, as й does; of others the marks are dropped, as é is an e.
  const isWhole = (sign: string) => letterOf(sign.toLowerCase()) !== undefined;
  const written = Array.from(text.normalize('NFC'))
    .flatMap((sign) => Array.from(isWhole(sign) ? sign : sign.normalize('NFKD')))
    .map((sign) => writtenAs(sign, letterOf(sign.toLowerCase())));
  if (written.includes(undefined)) return undefined;
  const latin = written.join('').trim();
  if (!/[A-Za-z0-9]/.test(latin)) return undefined;
  // ΘΕΟΣ is THEOS, and Θεός is Theos.
  return text === text.toUpperCase() ? latin.toUpperCase() : latin;
}

function writtenAs(sign: string, letter: string | undefined): string | undefined {
  const latin = allowed.test(sign) ? sign : letter;
  if (latin === undefined) return otherSign(sign);
  return sign === sign.toLowerCase() ? latin : latin.charAt(0).toUpperCase() + latin.slice(1);
}

/** What is not seen by itself is dropped, any other sign is a full stop, a letter cannot be written. */
function otherSign(sign: string): string | undefined {
  if (/[\p{M}\p{Cf}]/u.test(sign)) return '';
  return /[\p{L}\p{N}]/u.test(sign) ? undefined : '.';
}
