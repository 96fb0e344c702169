import tables from './latinLetters.json' with { type: 'json' };

/** The characters that ISO 20022 payments and SEPA always allow (EPC217-08). */
const allowed = /^[A-Za-z0-9/?:().,'+ -]$/;

const international: ReadonlyMap<string, string> = new Map(Object.entries(tables.letters));
const national: ReadonlyMap<string, ReadonlyMap<string, string>> = new Map(
  Object.entries(tables.national).map(([country, letters]) => [
    country,
    new Map(Object.entries(letters)),
  ]),
);

/**
 * Transliterates a text to characters that every rail accepts. The tables and their sources are in
 * latinLetters.json; no transliteration library follows the EPC's table. Scripts without a table, such as
 * Chinese and Arabic, are not guessed, because the bank may use another spelling.
 *
 * @param country ISO 3166-1; countries transliterate German umlauts and Cyrillic differently
 * @returns undefined if a letter is in no table, or if no letter or digit remains
 */
export function latinText(text: string, country: string): string | undefined {
  const own = national.get(country);
  const letterOf = (small: string) => own?.get(small) ?? international.get(small);
  // Letters in the table, such as й, are not decomposed. Others lose their marks: é becomes e.
  const isWhole = (sign: string) => letterOf(sign.toLowerCase()) !== undefined;
  const written = Array.from(text.normalize('NFC'))
    .flatMap((sign) => Array.from(isWhole(sign) ? sign : sign.normalize('NFKD')))
    .map((sign) => writtenAs(sign, letterOf(sign.toLowerCase())));
  if (written.includes(undefined)) return undefined;
  const latin = written.join('').trim();
  if (!/[A-Za-z0-9]/.test(latin)) return undefined;
  // ΘΕΟΣ becomes THEOS, and Θεός becomes Theos.
  return text === text.toUpperCase() ? latin.toUpperCase() : latin;
}

function writtenAs(sign: string, letter: string | undefined): string | undefined {
  const latin = allowed.test(sign) ? sign : letter;
  if (latin === undefined) return otherSign(sign);
  return sign === sign.toLowerCase() ? latin : latin.charAt(0).toUpperCase() + latin.slice(1);
}

/**
 * Handles a character without a transliteration: marks and invisible characters are dropped, letters and
 * numbers return undefined, and any other character becomes a full stop.
 */
function otherSign(sign: string): string | undefined {
  if (/[\p{M}\p{Cf}]/u.test(sign)) return '';
  return /[\p{L}\p{N}]/u.test(sign) ? undefined : '.';
}
