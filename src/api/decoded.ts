import { DecodedNumber } from '../contract/params.js';
import { type Refusal, refuse } from '../domain/refusal.js';

/** A decoded value as it was sent, with numbers kept as their literal text. */
export type Decoded = string | DecodedNumber | boolean | null | readonly Decoded[] | DecodedObject;

/** An object without a prototype, so that no name in it has a built-in meaning. */
export type DecodedObject = {
  readonly [name: string]: Decoded;
  readonly [itemLines]?: SentLines;
};

/** The decoded parameters, or the refusals. */
export type Decoding = DecodedObject | readonly Refusal[];

/** Key of the lines of items in a CSV or NDJSON body. No parameter can have a symbol as its name. */
export const itemLines = Symbol('lines of items');

/** The line number of each item, from 1, and the columns of a CSV body. */
export type SentLines = { readonly lines: readonly number[]; readonly columns?: SentColumns };

/** The names of the columns, and the line number of the header. */
export type SentColumns = { readonly names: readonly string[]; readonly line: number };

// A batch of 10,000 payouts with 7 parameters each is 3 MB, or 4 MB with percent-encoded brackets. This
// leaves room for long references in scripts with 3 bytes per letter.
export const maxBodyBytes = 8 * 1024 * 1024;
// 10,000 payouts with 7 parameters and 17 metadata names each, plus one more field for every payout. With all
// of them, the two batches of an account that are decoded at once take 80 MB.
export const maxFields = 250_000;
// The deepest valid name, payouts[0][metadata][key], has four levels.
export const maxDepth = 8;
// A payout has nine parameters and at most 50 metadata names. Each unknown name is compared with the known
// ones, so 100,000 unknown names would keep the process busy for seconds.
export const maxNames = 200;
// The longest valid name is a metadata key. A longer name would be unreadable in an error.
export const maxNameLength = 200;
// Far above the limit of every text parameter: anything longer is a file sent by mistake.
export const maxValueLength = 64 * 1024;
// No 64-bit integer and no rate needs more. Longer numbers would only cost time in big.js.
export const maxNumberLength = 40;
// Maximum number of errors that one response lists (design of the errors[] member).
export const maxProblems = 100;

const prototypeNames = new Set(['__proto__', 'constructor', 'prototype']);

/** Returns what one level of a name should have been, or undefined if it is valid. */
export function expectedOfName(name: string): string | undefined {
  if (name === '') return 'a name that is not empty';
  if (name.length > maxNameLength) return `a name of at most ${maxNameLength} characters`;
  if (prototypeNames.has(name)) return `a name other than ${[...prototypeNames].join(', ')}`;
  // A bracket inside a name would make two different paths look the same.
  if (/[[\]]/.test(name)) return 'a name with its brackets in pairs, as in payouts[0][amount]';
  return expectedOfText(name);
}

/** Returns what a text value should have been, or undefined if it is valid. */
export function expectedOfValue(value: string): string | undefined {
  if (value.length > maxValueLength) return `a text of at most ${maxValueLength} characters`;
  return expectedOfText(value);
}

/** PostgreSQL can store neither U+0000 nor an unpaired surrogate, and no real text contains them. */
function expectedOfText(text: string): string | undefined {
  return /\0|\p{Surrogate}/u.test(text) ? 'Unicode text without U+0000' : undefined;
}

/** Formats a path in the caller's own notation: `payouts[17][amount]`. */
export function paramName(path: readonly PropertyKey[]): string {
  const [root, ...rest] = path.map(String);
  return (root ?? '') + rest.map((name) => `[${name}]`).join('');
}

/** `metadata[order]` of `payouts[17]` is `payouts[17][metadata][order]`. */
export const paramInside = (item: string, name = '') => item + name.replace(/^[^[]+/, '[$&]');

/**
 * Flattens to [parameter name, text as sent] pairs. A form and JSON with the same values give the same pairs:
 * 1000 is "1000", true is "true", null is the empty text that a form would have, and an empty list or object,
 * which a form cannot express, gives no pair. The order of the names in an object does not matter.
 */
export function flatten(decoded: DecodedObject): readonly (readonly [string, string])[] {
  const pairs: (readonly [string, string])[] = [];
  for (const name of Object.keys(decoded).sort()) collect(name, decoded[name], pairs);
  return pairs;
}

function collect(name: string, value: Decoded | undefined, pairs: (readonly [string, string])[]) {
  if (value === null || value === undefined) pairs.push([name, '']);
  else if (typeof value === 'string') pairs.push([name, value]);
  else if (typeof value === 'boolean') pairs.push([name, String(value)]);
  else if (value instanceof DecodedNumber) pairs.push([name, value.text]);
  else if (isList(value))
    for (const [index, item] of value.entries()) collect(`${name}[${index}]`, item, pairs);
  else for (const key of Object.keys(value).sort()) collect(`${name}[${key}]`, value[key], pairs);
}

/** Refuses a body with too many values. It names none of them, because none is at fault. */
export const tooManyValues = () =>
  refuse('body_too_large', { expected: `at most ${maxFields.toLocaleString('en')} values` });

/** Whether a value is a list. Array.isArray alone does not narrow a readonly array. */
export function isList(value: Decoded | undefined): value is readonly Decoded[] {
  return Array.isArray(value);
}

/** Whether a value is an object with names. */
export function isObject(value: Decoded): value is DecodedObject {
  return (
    typeof value === 'object' &&
    value !== null &&
    !isList(value) &&
    !(value instanceof DecodedNumber)
  );
}

/** Refuses one parameter by its name. A name that is far too long for a response is truncated. */
export function refuseParam(param: string, expected: string, line?: number): Refusal {
  const shown = param.slice(0, maxDepth * (maxNameLength + '[]'.length));
  return refuse('parameter_invalid', { param: shown, expected, line });
}
