/**
 * Check digits of accounts, one function a scheme. Each takes the whole number, upper case and
 * without spaces, in the layout of its scheme, and says whether its check digits are right.
 */

/** The digits of a text as numbers. */
export const digitsOf = (text: string): readonly number[] =>
  Array.from(text).map((digit) => Number.parseInt(digit, 10));

/** Numbers times the weights, which repeat, added up. */
export function weightedSum(numbers: readonly number[], weights: readonly number[]): number {
  return numbers.reduce(
    (sum, number, index) => sum + number * (weights[index % weights.length] ?? 0),
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
  return weightedSum(digitsOf(bban.slice(0, 8)), [9, 7, 3, 1]) % 10 === 0;
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
function isRoutingNumber(digits: string): boolean {
  return (
    /^(?:0\d|1[0-2]|2[1-9]|3[0-2]|6[1-9]|7[0-2]|80)/.test(digits) &&
    // They pass the sum and belong to no bank.
    digits !== '000000000' &&
    weightedSum(digitsOf(digits), [3, 7, 1]) % 10 === 0
  );
}

/** Mexico: a CLABE has the weights of an ABA number over all of its 18 digits. */
function isClabe(digits: string): boolean {
  return weightedSum(digitsOf(digits), [3, 7, 1]) % 10 === 0;
}

/** Brazil: a CPF of a person; eleven equal digits pass the sum and belong to no one. */
function isCpf(text: string): boolean {
  const digits = digitsOf(text);
  const isRight = [9, 10].every((length) => {
    const weights = Array.from({ length }, (_, index) => length + 1 - index);
    return elevenOf(weightedSum(digits.slice(0, length), weights)) === digits[length];
  });
  return isRight && !/^(\d)\1*$/.test(text);
}

const cnpjWeights = [6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2];

/** Brazil: a CNPJ of a business; a letter counts as its ASCII code less 48 (since July 2026). */
function isCnpj(text: string): boolean {
  const values = Array.from(text, (character) => character.charCodeAt(0) - 48);
  return [12, 13].every((length) => {
    const weights = cnpjWeights.slice(13 - length);
    return elevenOf(weightedSum(values.slice(0, length), weights)) === values[length];
  });
}

/** The check digit of a sum modulo 11 as Brazil has it: 10 and 11 are written as 0. */
function elevenOf(sum: number): number {
  const rest = sum % 11;
  return rest < 2 ? 0 : 11 - rest;
}

function isCpfOrCnpj(text: string): boolean {
  return text.length === 11 ? isCpf(text) : isCnpj(text);
}

/** A key has 77 characters at most (Banco Central do Brasil, DICT); only tax numbers have check digits. */
function isPixKey(key: string): boolean {
  return key.length <= 77 && (!/^[0-9A-Z]{11,14}$/.test(key) || isCpfOrCnpj(key));
}

/** Argentina: the eighth digit checks the bank and the branch, the last one the account (BCRA, CBU). */
function isCbu(text: string): boolean {
  const [bank, account] = [digitsOf(text.slice(0, 8)), digitsOf(text.slice(8))];
  const sum = weightedSum(account, [3, 9, 7, 1, 3, 9, 7, 1, 3, 9, 7, 1, 3, 1]);
  return weightedSum(bank, [7, 1, 3, 9, 7, 1, 3, 1]) % 10 === 0 && sum % 10 === 0;
}

/** Chile: a RUT counts from the right, and its check digit K as 10. */
function isRut(text: string): boolean {
  const numbers = Array.from(text, (digit) => (digit === 'K' ? 10 : Number.parseInt(digit, 10)));
  return weightedSum(numbers.toReversed(), [1, 2, 3, 4, 5, 6, 7, 2, 3]) % 11 === 0;
}

/** Colombia: a CC of a person has no check digit, a NIT has (DIAN, Orden Administrativa 4 of 1989). */
function isColombianId(text: string): boolean {
  if (/^([0-9]{6,8}|1[0-9]{9})$/.test(text)) return true;
  const [check, ...digits] = digitsOf(text).toReversed();
  const rest = weightedSum(digits, [3, 7, 13, 17, 19, 23, 29, 37, 41]) % 11;
  return check === (rest < 2 ? rest : 11 - rest);
}

/** Peru: of the last two digits one checks the bank and the branch, and one the account, as Luhn has it. */
function isCci(digits: string): boolean {
  return isLuhn(digits.slice(0, 6) + digits[18]) && isLuhn(digits.slice(6, 18) + digits[19]);
}

/**
 * Nigeria: the last digit of an account checks it with the code of the bank, of 3 digits, or of 5 for
 * other financial institutions (CBN, Revised Standards on NUBAN, 2020).
 */
export function isNuban(bankCode: string, account: string): boolean {
  const institution = bankCode.length === 5 ? `9${bankCode}` : bankCode;
  const digits = digitsOf(institution + account);
  return (weightedSum(digits.slice(0, -1), [3, 7, 3]) + (digits.at(-1) ?? 0)) % 10 === 0;
}

// New Zealand's Inland Revenue publishes which sum a bank uses: the weights of the 16 digits, what
// divides the sum, and whether the digits of a product are added up first.
const newZealandSums = {
  usual: { weights: [0, 0, 6, 3, 7, 9, 0, 10, 5, 8, 4, 2, 1, 0, 0, 0], divisor: 11 },
  high: { weights: [0, 0, 0, 0, 0, 0, 0, 10, 5, 8, 4, 2, 1, 0, 0, 0], divisor: 11 },
  d: { weights: [0, 0, 0, 0, 0, 0, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0], divisor: 11 },
  e: { weights: [0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 4, 3, 2, 0, 0, 1], divisor: 11, addsDigits: true },
  f: { weights: [0, 0, 0, 0, 0, 0, 1, 7, 3, 1, 7, 3, 1, 0, 0, 0], divisor: 10 },
  g: { weights: [0, 0, 0, 0, 0, 0, 1, 3, 7, 1, 3, 7, 1, 3, 7, 1], divisor: 10, addsDigits: true },
};

// The banks whose sum is the usual one, by their first two digits, and those that have another.
const usualBanks = /^(?:0[12346]|1\d|2[0-4]|27|30|35|38)/;
const otherSums: Readonly<Record<string, keyof typeof newZealandSums>> = {
  '08': 'd',
  '09': 'e',
  '25': 'f',
  '26': 'g',
  '28': 'g',
  '29': 'g',
  '33': 'f',
};

/** New Zealand: bank 2, branch 4, account 7 and suffix 2 or 3 digits; a bank that is not listed has no sum. */
function isNewZealandAccount(digits: string): boolean {
  const usual = digits.slice(6, 13) >= '0990000' ? 'high' : 'usual';
  const name = usualBanks.test(digits) ? usual : otherSums[digits.slice(0, 2)];
  if (name === undefined) return true;
  const { weights, divisor, addsDigits } = { addsDigits: false, ...newZealandSums[name] };
  // A suffix of two digits is one of three with a zero in front.
  const full = digits.slice(0, 13) + digits.slice(13).padStart(3, '0');
  const sum = digitsOf(full).reduce((total, digit, index) => {
    const product = digit * (weights[index] ?? 0);
    // Added up until one digit is left: 45 is 9, and 39 is 12 is 3.
    return total + (addsDigits && product > 9 ? 1 + ((product - 1) % 9) : product);
  }, 0);
  return sum % divisor === 0;
}

/** The checks that the table of accounts names. */
export const checks: Readonly<Record<string, (value: string) => boolean>> = {
  aba: isRoutingNumber,
  cbu: isCbu,
  cci: isCci,
  clabe: isClabe,
  colombia: isColombianId,
  cpfOrCnpj: isCpfOrCnpj,
  newZealand: isNewZealandAccount,
  pixKey: isPixKey,
  rut: isRut,
};
