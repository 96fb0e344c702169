import { digitsOf, weightedSum } from './checkDigits.js';
import table from './modulusWeights.json' with { type: 'json' };

/**
 * One check from Vocalink, "Validating account numbers: UK modulus checking"; modulusWeights.json names
 * the version of its tables. As in the specification, the digits of a sort code are called u to z and
 * those of an account a to h.
 */
type Check = {
  readonly from: string;
  readonly to: string;
  readonly method: string;
  readonly weights: readonly number[];
  readonly exception: number;
};

const checks: readonly Check[] = table.weights.map((row) => {
  const [from = '', to = '', method = '', ...numbers] = row.split(' ');
  const weights = numbers.slice(0, 14).map((number) => Number.parseInt(number, 10));
  return { from, to, method, weights, exception: Number.parseInt(numbers[14] ?? '0', 10) };
});
const substitutes: ReadonlyMap<string, string> = new Map(Object.entries(table.substitutes));

/** Exceptions with which one of a sort code's two checks has to pass. Otherwise both have to. */
const eitherPasses: ReadonlySet<number> = new Set([2, 9, 10, 11, 12, 13]);

/**
 * Whether an account of eight digits may exist at a sort code of six. Sort codes that are not in the
 * table cannot be checked and pass.
 */
export function isAccountAt(sortCode: string, account: string): boolean {
  const own = checks.filter(({ from, to }) => from <= sortCode && sortCode <= to);
  const passes = (check: Check) => isPassed(check, sortCode, account);
  return own.some(({ exception }) => eitherPasses.has(exception))
    ? own.some(passes)
    : own.every(passes);
}

function isPassed(check: Check, sortCode: string, account: string): boolean {
  const [a = '', b = '', c = '', , , , g = '', h = ''] = account;
  switch (check.exception) {
    case 3:
      return /[69]/.test(c) || hasNoRemainder(check, sortCode + account);
    case 4:
      return remainderOf(check, sortCode + account) === Number.parseInt(g + h, 10);
    case 5:
      return isSubstitutePassed(check, (substitutes.get(sortCode) ?? sortCode) + account, g, h);
    case 6:
      // Accounts in a foreign currency have no check digits.
      return (/[4-8]/.test(a) && g === h) || hasNoRemainder(check, sortCode + account);
    case 8:
      return hasNoRemainder(check, `090126${account}`);
    case 9:
      return hasNoRemainder(check, `309634${account}`);
    case 14:
      return (
        hasNoRemainder(check, sortCode + account) ||
        (/[019]/.test(h) && hasNoRemainder(check, `${sortCode}0${account.slice(0, 7)}`))
      );
    default:
      return hasNoRemainder({ ...check, weights: weightsOf(check, a, b, g) }, sortCode + account);
  }
}

/** Returns the weights of a check. Three exceptions change them depending on the account's digits. */
function weightsOf({ exception, weights }: Check, a: string, b: string, g: string) {
  const bankIsLeftOut = [0, 0, 0, 0, 0, 0, 0, 0, ...weights.slice(8)];
  if (exception === 7 && g === '9') return bankIsLeftOut;
  if (exception === 10 && /[09]/.test(a) && b === '9' && g === '9') return bankIsLeftOut;
  if (exception !== 2 || a === '0') return weights;
  return g === '9'
    ? [0, 0, 0, 0, 0, 0, 0, 0, 8, 7, 10, 9, 3, 1]
    : [0, 0, 1, 2, 5, 3, 6, 4, 8, 7, 10, 9, 3, 1];
}

/** Exception 5: the check digit is g (modulo 11) or h (modulo 10), which have no weight. */
function isSubstitutePassed(check: Check, digits: string, g: string, h: string): boolean {
  const modulus = check.method === 'MOD11' ? 11 : 10;
  const expected = (modulus - remainderOf(check, digits)) % modulus;
  return expected === Number.parseInt(modulus === 11 ? g : h, 10);
}

function hasNoRemainder(check: Check, digits: string): boolean {
  return remainderOf(check, digits) === 0;
}

/** Returns the remainder of the weighted sum; with double alternate, of the sum of the products' digits. */
function remainderOf({ method, weights, exception }: Check, text: string): number {
  const digits = digitsOf(text);
  if (method !== 'DBLAL') return weightedSum(digits, weights) % (method === 'MOD11' ? 11 : 10);
  const products = digits.map((digit, index) => digit * (weights[index] ?? 0));
  const sum = digitsOf(products.join('')).reduce((total, digit) => total + digit, 0);
  return (sum + (exception === 1 ? 27 : 0)) % 10;
}
