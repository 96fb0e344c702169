import newZealandSums from './newZealandSums.json' with { type: 'json' };

/**
 * Check digits of account numbers, one function per scheme. Each takes the whole number in the layout of
 * its scheme, in upper case and without spaces, and returns whether the check digits are right.
 */

/** Converts a string of digits to numbers. */
export const digitsOf = (text: string): readonly number[] =>
  Array.from(text).map((digit) => Number.parseInt(digit, 10));

/** Returns the sum of numbers multiplied by weights. The weights repeat if there are more numbers. */
export function weightedSum(numbers: readonly number[], weights: readonly number[]): number {
  return numbers.reduce(
    (sum, number, index) => sum + number * (weights[index % weights.length] ?? 0),
    0,
  );
}

/** Returns the remainder modulo 97 (ISO 7064). Letters count as numbers, from A as 10 to Z as 35. */
export function mod97(text: string): bigint {
  const digits = Array.from(text)
    .map((character) => Number.parseInt(character, 36))
    .join('');
  return BigInt(digits) % 97n;
}

/** Luhn check (ISO/IEC 7812-1, annex B): every second digit from the right is doubled. */
export function isLuhn(digits: string): boolean {
  const sum = digitsOf(digits)
    .toReversed()
    .reduce((total, digit, index) => {
      const doubled = index % 2 === 0 ? digit : digit * 2;
      return total + (doubled > 9 ? doubled - 9 : doubled);
    }, 0);
  return sum % 10 === 0;
}

/** Albania: the eighth digit is the check digit of the bank and branch codes before it. */
export function isAlbanianBank(bban: string): boolean {
  return weightedSum(digitsOf(bban.slice(0, 8)), [9, 7, 3, 1]) % 10 === 0;
}

// Italy's values of characters in odd positions, in alphabetical order. A digit has the value of the
// letter at that index: 0 that of A, 1 that of B.
const oddPlaces = [
  1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23,
];

/** Italy and San Marino: the first letter, the CIN, is the check character of the rest. */
export function isCin(bban: string): boolean {
  const sum = Array.from(bban.slice(1)).reduce((total, character, index) => {
    const value = Number.parseInt(character, 36) - (/\d/.test(character) ? 0 : 10);
    return total + (index % 2 === 0 ? (oddPlaces[value] ?? 0) : value);
  }, 0);
  return bban.charCodeAt(0) - 65 === sum % 26;
}

/**
 * United States: ABA routing number. The first two digits denote a Federal Reserve district or a kind of
 * institution (00–12, 21–32, 61–72, 80).
 */
function isRoutingNumber(digits: string): boolean {
  return (
    /^(?:0\d|1[0-2]|2[1-9]|3[0-2]|6[1-9]|7[0-2]|80)/.test(digits) &&
    // All zeros pass the checksum but belong to no bank.
    digits !== '000000000' &&
    weightedSum(digitsOf(digits), [3, 7, 1]) % 10 === 0
  );
}

/** Brazil: CPF of a person. Eleven equal digits pass the checksum but are never assigned. */
function isCpf(text: string): boolean {
  const digits = digitsOf(text);
  const isRight = [9, 10].every((length) => {
    const weights = Array.from({ length }, (_, index) => length + 1 - index);
    return mod11CheckDigit(weightedSum(digits.slice(0, length), weights)) === digits[length];
  });
  return isRight && !/^(\d)\1*$/.test(text);
}

const cnpjWeights = [6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2];

/** Brazil: CNPJ of a business. A letter counts as its ASCII code minus 48 (since July 2026). */
function isCnpj(text: string): boolean {
  const values = Array.from(text, (character) => character.charCodeAt(0) - 48);
  return [12, 13].every((length) => {
    const weights = cnpjWeights.slice(13 - length);
    return mod11CheckDigit(weightedSum(values.slice(0, length), weights)) === values[length];
  });
}

/** Returns the modulo 11 check digit of a sum by Brazil's rule: 10 and 11 are written as 0. */
function mod11CheckDigit(sum: number): number {
  const rest = sum % 11;
  return rest < 2 ? 0 : 11 - rest;
}

const isCpfOrCnpj = (text: string) => (text.length === 11 ? isCpf(text) : isCnpj(text));

/** Argentina: the eighth digit checks the bank and branch, the last digit the account (BCRA, CBU). */
function isCbu(text: string): boolean {
  const [bank, account] = [digitsOf(text.slice(0, 8)), digitsOf(text.slice(8))];
  const sum = weightedSum(account, [3, 9, 7, 1, 3, 9, 7, 1, 3, 9, 7, 1, 3, 1]);
  return weightedSum(bank, [7, 1, 3, 9, 7, 1, 3, 1]) % 10 === 0 && sum % 10 === 0;
}

/** Chile: the weights of a RUT apply from the right. The check digit K counts as 10. */
function isRut(text: string): boolean {
  const numbers = Array.from(text, (digit) => (digit === 'K' ? 10 : Number.parseInt(digit, 10)));
  return weightedSum(numbers.toReversed(), [1, 2, 3, 4, 5, 6, 7, 2, 3]) % 11 === 0;
}

/** Colombia: a person's CC has no check digit, a NIT has one (DIAN, Orden Administrativa 4 of 1989). */
function isColombianId(text: string): boolean {
  if (/^([0-9]{6,8}|1[0-9]{9})$/.test(text)) return true;
  const [check, ...digits] = digitsOf(text).toReversed();
  const rest = weightedSum(digits, [3, 7, 13, 17, 19, 23, 29, 37, 41]) % 11;
  return check === (rest < 2 ? rest : 11 - rest);
}

/**
 * Nigeria: the last digit of an account number is the check digit of the bank code and the account together.
 * Banks have 3-digit codes, other financial institutions 5 digits (CBN, Revised Standards on NUBAN, 2020).
 */
export function isNuban(bankCode: string, account: string): boolean {
  const institution = bankCode.length === 5 ? `9${bankCode}` : bankCode;
  const digits = digitsOf(institution + account);
  return (weightedSum(digits.slice(0, -1), [3, 7, 3]) + (digits.at(-1) ?? 0)) % 10 === 0;
}

// New Zealand's Inland Revenue publishes the checksum algorithms of banks: the weights of the 16 digits,
// the divisor of the sum, and whether the digits of each product are added first. The other banks are named by
// their first two digits; the usual ones share an algorithm, which has other weights for high accounts.
const algorithms = new Map(Object.entries(newZealandSums.algorithms));
const otherBanks = new Map(Object.entries(newZealandSums.banks));
const usualBanks = /^(?:0[12346]|1\d|2[0-4]|27|30|35|38)/;

/**
 * New Zealand: 2 digits of the bank, 4 of the branch, 7 of the account and 2 or 3 of the suffix. Accounts
 * of banks that are not listed have no checksum.
 */
function isNewZealandAccount(digits: string): boolean {
  const usual = digits.slice(6, 13) >= '0990000' ? 'high' : 'usual';
  const name = usualBanks.test(digits) ? usual : otherBanks.get(digits.slice(0, 2));
  const algorithm = algorithms.get(name ?? '');
  if (algorithm === undefined) return true;
  const { weights, divisor, addsDigits } = algorithm;
  // A two-digit suffix equals a three-digit suffix with a leading zero.
  const full = digits.slice(0, 13) + digits.slice(13).padStart(3, '0');
  const sum = digitsOf(full).reduce((total, digit, index) => {
    const product = digit * (weights[index] ?? 0);
    // The digits are added until one digit is left: 45 gives 9; 39 gives 12, which gives 3.
    return total + (addsDigits && product > 9 ? 1 + ((product - 1) % 9) : product);
  }, 0);
  return sum % divisor === 0;
}

/** The checks by their names in accountFormats.json. */
export const checks: Readonly<Record<string, (value: string) => boolean>> = {
  aba: isRoutingNumber,
  cbu: isCbu,
  /** Peru: the last two digits are Luhn check digits, one of bank and branch, the other of the account. */
  cci: (text) => isLuhn(text.slice(0, 6) + text[18]) && isLuhn(text.slice(6, 18) + text[19]),
  /** Mexico: a CLABE uses the weights of an ABA routing number over all 18 digits. */
  clabe: (digits) => weightedSum(digitsOf(digits), [3, 7, 1]) % 10 === 0,
  colombia: isColombianId,
  cpfOrCnpj: isCpfOrCnpj,
  newZealand: isNewZealandAccount,
  /** Brazil: Pix key of at most 77 characters (Banco Central, DICT). Only tax numbers have check digits. */
  pixKey: (key) => key.length <= 77 && (!/^[0-9A-Z]{11,14}$/.test(key) || isCpfOrCnpj(key)),
  rut: isRut,
};
