import { DecodedNumber } from '../contract/params.js';
import { type Refusal, refuse } from '../domain/refusal.js';

/** A decoded value: what was sent, with numbers kept as their literal text. */
export type Decoded = string | DecodedNumber | boolean | null | readonly Decoded[] | DecodedObject;

/** An object without a prototype, so that no name in it can mean anything but itself. */
export type DecodedObject = {
  readonly [name: string]: Decoded;
  readonly [itemLines]?: SentLines;
};

/** The parameters, or why there are none. */
export type Decoding = DecodedObject | readonly Refusal[];

/** No parameter can have this name: where the items of a CSV or NDJSON body stood in it. */
export const itemLines = Symbol('lines of items');

/** The line of each item, from 1, and the columns if there are any. */
export type SentLines = { readonly lines: readonly number[]; readonly columns?: SentColumns };

/** The names of the columns, and the line that they stand on. */
export type SentColumns = { readonly names: readonly string[]; readonly line: number };

// A batch of 10,000 payouts with 7 parameters each is 3 MB, and 4 MB with the brackets
// percent-encoded; this leaves room for long references in scripts of 3 bytes a letter.
export const maxBodyBytes = 8 * 1024 * 1024;
// 10,000 payouts with 7 parameters and 4 names of metadata each, and one more for every payout.
export const maxFields = 120_000;
// The deepest name we know, payouts[0][metadata][key], has four levels.
export const maxDepth = 8;
// A payout has nine parameters and at most 50 names of metadata; each name that is unknown is
// compared with the known ones, so that 100,000 of them would keep the process busy for seconds.
export const maxNames = 200;
// The longest name is a metadata key, and a longer one in an error is unreadable.
export const maxNameLength = 200;
// Far above every text parameter; what is longer is a file sent by mistake.
export const maxValueLength = 64 * 1024;
// No 64-bit integer and no rate needs more; longer ones only burn time in big.js.
export const maxNumberLength = 40;
// As many errors as one answer lists (design of the errors[] member).
export const maxProblems = 100;

const prototypeNames = new Set(['__proto__', 'constructor', 'prototype']);

/** What one level of a name ought to have been, or undefined if it is well. */
export function expectedOfName(name: string): string | undefined {
  if (name === '') return 'a name that is not empty';
  if (name.length > maxNameLength) return `a name of at most ${maxNameLength} characters`;
  if (prototypeNames.has(name)) return `a name other than ${[...prototypeNames].join(', ')}`;
  // A bracket inside a name would make two different paths read the same.
  if (/[[\]]/.test(name)) return 'a name with its brackets in pairs, as in payouts[0][amount]';
  return expectedOfText(name);
}

/** What a text value ought to have been, or undefined if it is well. */
export function expectedOfValue(value: string): string | undefined {
  if (value.length > maxValueLength) return `a text of at most ${maxValueLength} characters`;
  return expectedOfText(value);
}

/** PostgreSQL stores neither U+0000 nor half a surrogate pair, and no real text has them. */
function expectedOfText(text: string): string | undefined {
  return /\0|\p{Surrogate}/u.test(text) ? 'Unicode text without U+0000' : undefined;
}

/** The caller's own notation of a path: `payouts[17][amount]`. */
export function paramName(path: readonly PropertyKey[]): string {
  const [root, ...rest] = path.map(String);
  return (root ?? '') + rest.map((name) => `[${name}]`).join('');
}

/**
 * Flattens to [param name, text as sent] pairs, the same for a form and for JSON with the
 * same values: 1000 is "1000", true is "true", null is the empty text that a form has in
 * its place, and an empty list or object, which a form cannot say, is nothing. The pairs
 * do not depend on the order in which the names of an object arrived.
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

/** Whether it is a list; Array.isArray alone does not narrow a readonly array. */
export function isList(value: Decoded | undefined): value is readonly Decoded[] {
  return Array.isArray(value);
}

/** Whether it is an object with names. */
export function isObject(value: Decoded): value is DecodedObject {
  return (
    typeof value === 'object' &&
    value !== null &&
    !isList(value) &&
    !(value instanceof DecodedNumber)
  );
}

/** Refuses one parameter by its name, which may itself be far too long to be answered. */
export function refuseParam(param: string, expected: string, line?: number): Refusal {
  const shown = param.slice(0, maxDepth * (maxNameLength + '[]'.length));
  return refuse('parameter_invalid', { param: shown, expected, line });
}
