/**
 * Check digits of accounts, one function a scheme. Each takes the whole number, upper case and
 * without spaces, in the layout of its scheme, and says whether its check digits are right.
 */

const digitsOf = (text: string): readonly number[] =>
  Array.from(text).map((digit) => Number.parseInt(digit, 10));

/** The digits of a text times the weights, which repeat, added up. */
function weightedSum(text: string, weights: readonly number[]): number {
  return digitsOf(text).reduce(
    (sum, digit, index) => sum + digit * (weights[index % weights.length] ?? 0),
    0,
  );
}

/** The remainder of ISO 7064: a letter stands for its number, A for 10 and Z for 35. */
export function mod97(text: string): bigint {
  const digits = Array.from(text)
    .map((character) => Number.parseInt(character, 36))
    .join('');
  return BigInt(digits) % 97n;
}

/** The sum of Luhn (ISO/IEC 7812-1, annex B): each second digit from the right is doubled. */
export function isLuhn(digits: string): boolean {
  const sum = digitsOf(digits)
    .toReversed()
    .reduce((total, digit, index) => {
      const doubled = index % 2 === 0 ? digit : digit * 2;
      return total + (doubled > 9 ? doubled - 9 : doubled);
    }, 0);
  return sum % 10 === 0;
}

/** Albania: the eighth digit checks the bank and the branch before it. */
export function isAlbanianBank(bban: string): boolean {
  return weightedSum(bban.slice(0, 8), [9, 7, 3, 1]) % 10 === 0;
}

// Italy's table of what a character in an odd place counts, in the order of the alphabet; a digit
// counts as the letter with its number.
const oddPlaces = [
  1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23,
];

/** Italy and San Marino: the CIN, a letter, checks what follows it. */
export function isCin(bban: string): boolean {
  const sum = Array.from(bban.slice(1)).reduce((total, character, index) => {
    const value = Number.parseInt(character, 36) - (/\d/.test(character) ? 0 : 10);
    return total + (index % 2 === 0 ? (oddPlaces[value] ?? 0) : value);
  }, 0);
  return bban.charCodeAt(0) - 65 === sum % 26;
}

/**
 * ABA routing numbers: the first two digits name a Federal Reserve district or a kind of
 * institution (00–12, 21–32, 61–72, 80).
 */
export function isRoutingNumber(digits: string): boolean {
  return (
    /^(?:0\d|1[0-2]|2[1-9]|3[0-2]|6[1-9]|7[0-2]|80)/.test(digits) &&
    // They pass the sum and belong to no bank.
    digits !== '000000000' &&
    weightedSum(digits, [3, 7, 1]) % 10 === 0
  );
}
