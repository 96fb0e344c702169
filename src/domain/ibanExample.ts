import { composeIBAN, countrySpecs, validateIBAN } from 'ibantools';

/** The layout of an issuer's IBAN as a regular expression, from the SWIFT registry. */
export function ibanPattern(issuer: string): string {
  const layout = countrySpecs[issuer]?.bban_regexp ?? '';
  return `^${issuer}[0-9]{2}${layout.replace(/^\^|\$$/g, '')}$`;
}

/** National check digits are two at most, so one of this many numbers has them right. */
const maximumTries = 10_000;

/** No part of an IBAN is longer than the 30 characters of all of them. */
const repetitions = 8;

/** A valid IBAN of an issuer, to show the form; on purpose it belongs to no account. */
export function exampleIban(issuer: string): string {
  const parts = [...ibanPattern(issuer).matchAll(/\[([^\]]+)\]\{(\d+)\}/g)].slice(1);
  const layout = parts.map(([, set, length]) => ({
    isLetters: set === 'A-Z',
    length: Number.parseInt(length ?? '0', 10),
  }));
  for (let number = 1; number <= maximumTries; number += 1) {
    // Repeated, so that bank and account both vary: each may have a check digit of its own.
    let rest = String(number).padStart(4, '0').repeat(repetitions);
    const bban = layout.map((part) => {
      if (part.isLetters) return 'ABCD'.slice(0, part.length);
      const own = rest.slice(0, part.length);
      rest = rest.slice(part.length);
      return own;
    });
    const iban = composeIBAN({ countryCode: issuer, bban: bban.join('') });
    if (iban !== null && validateIBAN(iban).valid) return iban;
  }
  throw new Error(`No example of an IBAN of ${issuer} was found.`);
}
