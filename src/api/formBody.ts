import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import type { Refusal } from '../domain/refusal.js';
import {
  type Decoded,
  type DecodedObject,
  type Decoding,
  expectedOfName,
  expectedOfValue,
  maxDepth,
  maxFields,
  maxNames,
  maxProblems,
  refuseParam,
  tooManyValues,
} from './decoded.js';
import { memberOf } from './paramSchema.js';
import type { Steps } from './slices.js';

/**
 * The values under a name while the body is read. A map accepts any name and any index as a key, so
 * `a[999999]` costs as much as `a[0]`. Lists are checked and built at the end.
 */
export type Branch<Leaf = string> = {
  readonly kind: 'object' | 'numbered' | 'appended';
  readonly children: Map<string, Leaf | Branch<Leaf>>;
};

const percent = 0x25;

const mustBeOneKind = 'one value, a list or an object, not two of them';

/**
 * Decodes `application/x-www-form-urlencoded` (WHATWG URL, section 5) with nested names in brackets:
 * `a[b][0]=v`, and `a[]=v` to append. Makes one pass over the body, and one step for each level of each name.
 * Every refusal names its parameter.
 *
 * @param params identifies lists, whose name may be repeated without brackets, and objects, in which `0` is a
 * name like any other
 */
export function* decodeForm(body: Buffer, params?: z.ZodObject): Steps<Decoding> {
  // Read as Latin-1, with one character per byte, so that a byte that is not UTF-8 can be refused together
  // with the name of its parameter.
  const pairs = body.toString('latin1').split('&', maxFields + 1);
  if (pairs.length > maxFields) return [tooManyValues()];
  const root: Branch = { kind: 'object', children: new Map() };
  const problems: Refusal[] = [];
  for (const pair of pairs) {
    if (pair === '') continue;
    const problem = readPair(root, pair, params);
    if (problem !== undefined && problems.push(problem) >= maxProblems) break;
    yield;
  }
  // A refused parameter leaves gaps in lists, whose refusals would only hide the cause.
  if (problems.length > 0) return problems;
  const decoded = yield* finishObject(root, '', problems);
  return problems.length > 0 ? problems : decoded;
}

function readPair(root: Branch, pair: string, params?: z.ZodObject): Refusal | undefined {
  const equals = pair.indexOf('=');
  const sentName = equals < 0 ? pair : pair.slice(0, equals);
  const name = decodeText(sentName);
  if (typeof name !== 'string') return refuseParam(sentName, name.expected);
  const path = readName(name);
  if (!Array.isArray(path)) return refuseParam(name, path.expected);
  const value = decodeText(equals < 0 ? '' : pair.slice(equals + 1));
  if (typeof value !== 'string') return refuseParam(name, value.expected);
  if (path.length === 1 && memberOf(params, name) instanceof z.ZodArray) path.push('');
  const kinds = kindsOf(path, params);
  const expected = expectedOfValue(value) ?? insert(root, path, value, kinds);
  return expected === undefined ? undefined : refuseParam(name, expected);
}

/**
 * Undoes the percent encoding: `+` is a space, `%41` a byte, and all bytes are UTF-8. One loop over the
 * bytes, because a function call for each of eight million would block all other requests for seconds.
 */
function decodeText(sent: string): string | { readonly expected: string } {
  if (!/[%+\x80-\xff]/.test(sent)) return sent;
  if (/%(?![0-9A-Fa-f]{2})/.test(sent))
    return { expected: 'text with two hexadecimal digits after each %' };
  const bytes = Buffer.from(sent.replaceAll('+', ' '), 'latin1');
  let length = 0;
  for (let at = 0; at < bytes.length; at += 1) {
    let byte = bytes[at] ?? 0;
    if (byte === percent) {
      const [high = 0, low = 0] = [bytes[at + 1], bytes[at + 2]];
      // The low four bits of a digit are its value. Those of a letter, whose code is above 63, are 9 less.
      byte = ((high & 15) + 9 * (high >> 6)) * 16 + (low & 15) + 9 * (low >> 6);
      at += 2;
    }
    bytes[length] = byte;
    length += 1;
  }
  const decoded = bytes.subarray(0, length);
  return isUtf8(decoded) ? decoded.toString() : { expected: 'text in UTF-8' };
}

/** Splits `a[b][]` into `a`, `b` and the empty name, which appends. */
export function readName(name: string): string[] | { readonly expected: string } {
  const bracket = name.indexOf('[');
  const nested = bracket >= 0 && name.endsWith(']');
  // One level more than allowed is enough to know that there are too many.
  const path = nested
    ? [name.slice(0, bracket), ...name.slice(bracket + 1, -1).split('][', maxDepth)]
    : [name];
  if (path.length > maxDepth) return { expected: `a name of at most ${maxDepth} levels` };
  for (const [level, key] of path.entries()) {
    if (key === '' && level > 0) {
      if (level === path.length - 1) continue;
      return {
        expected: 'a name with an index in every [] but the last, as in payouts[0][amount]',
      };
    }
    const expected = expectedOfName(key);
    if (expected !== undefined) return { expected };
  }
  return path;
}

/**
 * Returns the kind of branch for each name of a path except the first: by the schema, or by the name itself.
 */
function kindsOf(path: readonly string[], params?: z.ZodObject): readonly Branch['kind'][] {
  let schema: z.core.$ZodType | undefined = params;
  return path.slice(1).map((key, level) => {
    schema = memberOf(schema, path[level] ?? '');
    if (key === '') return 'appended';
    const isNamed = schema instanceof z.ZodRecord || schema instanceof z.ZodObject;
    return !isNamed && /^\d+$/.test(key) ? 'numbered' : 'object';
  });
}

/**
 * Inserts a value at its path. If that is impossible, returns what was expected instead.
 *
 * @param kinds the kind of branch for each name of the path except the first
 */
export function insert<Leaf extends string | number>(
  root: Branch<Leaf>,
  path: readonly string[],
  value: Leaf,
  kinds: readonly Branch['kind'][],
): string | undefined {
  let branch = root;
  for (const [level, key] of path.slice(0, -1).entries()) {
    const kind = kinds[level] ?? 'object';
    const next = path[level + 1] ?? '';
    if (kind === 'numbered' && /^0\d/.test(next))
      return 'a name whose indexes have no leading zeros';
    const child = branch.children.get(key) ?? { kind, children: new Map() };
    if (typeof child !== 'object' || child.kind !== kind) return mustBeOneKind;
    branch.children.set(key, child);
    branch = child;
  }
  const last = path.at(-1) ?? '';
  const key = branch.kind === 'appended' ? String(branch.children.size) : last;
  const present = branch.children.get(key);
  if (present !== undefined) return typeof present === 'object' ? mustBeOneKind : 'sent once';
  branch.children.set(key, value);
  return undefined;
}

function* finish(node: Branch, name: string, problems: Refusal[]): Steps<Decoded> {
  return node.kind === 'object'
    ? yield* finishObject(node, name, problems)
    : yield* finishList(node, name, problems);
}

function* finishObject(branch: Branch, name: string, problems: Refusal[]): Steps<DecodedObject> {
  const object: Record<string, Decoded> = Object.create(null);
  const paramOf = (key: string) => (name === '' ? key : `${name}[${key}]`);
  const extra = [...branch.children.keys()][maxNames];
  if (extra !== undefined && problems.length < maxProblems) {
    problems.push(refuseParam(paramOf(extra), `left out: an object has at most ${maxNames} names`));
  }
  for (const [key, child] of branch.children) {
    object[key] = typeof child === 'string' ? child : yield* finish(child, paramOf(key), problems);
  }
  return object;
}

/** Builds a list. If it has n items, their indexes must be 0 to n - 1; the first missing one is refused. */
function* finishList(branch: Branch, name: string, problems: Refusal[]): Steps<readonly Decoded[]> {
  const list: Decoded[] = [];
  for (let index = 0; index < branch.children.size; index += 1) {
    const param = `${name}[${index}]`;
    const item = branch.children.get(String(index));
    if (item === undefined) {
      const expected = 'sent as well: a list is numbered from 0 without gaps';
      if (problems.length < maxProblems) problems.push(refuseParam(param, expected));
      return list;
    }
    list.push(typeof item === 'string' ? item : yield* finish(item, param, problems));
    yield;
  }
  return list;
}
