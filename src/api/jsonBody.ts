import { isUtf8 } from 'node:buffer';
import type { z } from 'zod';
import { DecodedNumber } from '../contract/params.js';
import { type Refusal, refuse } from '../domain/refusal.js';
import {
  type Decoded,
  type DecodedObject,
  type Decoding,
  expectedOfName,
  expectedOfValue,
  itemLines,
  maxDepth,
  maxFields,
  maxNames,
  maxNumberLength,
  maxProblems,
  paramName,
  refuseParam,
  tooManyValues,
} from './decoded.js';
import { isOptionalAt } from './paramSchema.js';
import type { Steps } from './slices.js';

/** Thrown where the text is not JSON, or has too many values. It never leaves this file. */
class Unreadable extends Error {}

/**
 * Decodes `application/json` (RFC 8259), whose root must be an object. JSON.parse would lose what matters
 * here: the text of a number, the first of two equal names, and the position of a refused value. So this file
 * parses the structure, and JSON.parse only the strings.
 */
export function* decodeJson(body: Buffer, params?: z.ZodObject, isNew = false): Steps<Decoding> {
  if (!isUtf8(body)) return [refuse('body_malformed', { expected: 'JSON in UTF-8' })];
  const reader = new JsonReader(isNew ? params : undefined);
  const decoded = yield* reader.readText(body.toString('utf8'));
  return decoded === undefined || reader.problems.length > 0 ? reader.problems : decoded;
}

/**
 * Decodes `application/x-ndjson`: one item of `payouts` per line, each a JSON object. Lines end with LF or CR
 * LF, and blank lines are skipped. A line that is not JSON does not hide problems in the next one: each is
 * refused under its item, with its line in `detail`.
 */
export function* decodeNdjson(body: Buffer, params?: z.ZodObject, isNew = false): Steps<Decoding> {
  // If any byte is not UTF-8, read as Latin-1, with one character per byte, so that the line can be named.
  const encoding = isUtf8(body) ? 'utf8' : 'latin1';
  const text = body.toString(encoding);
  const reader = new JsonReader(isNew ? params : undefined);
  const payouts: (DecodedObject | undefined)[] = [];
  const lines: number[] = [];
  let number = 1;
  for (let start = 0; start < text.length && !reader.isFull; number += 1) {
    const newline = text.indexOf('\n', start);
    const end = newline < 0 ? text.length : newline;
    if (!isBlank(text, start, end)) {
      const line = text.slice(start, end);
      const path = ['payouts', payouts.length];
      const place = { param: paramName(path), line: number };
      lines.push(number);
      const isText = encoding === 'utf8' || isUtf8(Buffer.from(line, encoding));
      if (!isText) {
        reader.problems.push(refuse('body_malformed', { ...place, expected: 'JSON in UTF-8' }));
      }
      payouts.push(isText ? yield* reader.readText(line, path, place) : undefined);
    }
    start = end + 1;
    yield;
  }
  if (reader.problems.length > 0) return reader.problems;
  return Object.assign(Object.create(null), { payouts, [itemLines]: { lines } });
}

/** Whether a range is only JSON white space. Makes no copy, because a body may have 8 million lines. */
function isBlank(text: string, start: number, end: number): boolean {
  let at = start;
  while (at < end && ' \t\r'.includes(text.charAt(at))) at += 1;
  return at === end;
}

/** Reads several JSON texts, with one set of caps for all of them together. */
class JsonReader {
  readonly problems: Refusal[] = [];
  private text = '';
  private line: number | undefined;
  private path: (string | number)[] = [];
  private at = 0;
  private fields = 0;

  /** @param params schema of the parameters: null for an optional one means left out, and is not kept */
  constructor(private readonly params?: z.ZodObject) {}

  /** Whether to stop reading: a cap is exceeded, or there are as many problems as a response lists. */
  get isFull(): boolean {
    return this.fields > maxFields || this.problems.length >= maxProblems;
  }

  /**
   * Reads a text that must be one object. Otherwise adds a problem and returns undefined.
   *
   * @param path where the object is in the body
   * @param place added to the problem of a text that is not JSON
   */
  *readText(
    text: string,
    path: readonly (string | number)[] = [],
    place: Pick<Refusal, 'param' | 'line'> = {},
  ): Steps<DecodedObject | undefined> {
    this.text = text;
    this.line = place.line;
    this.path = [...path];
    this.at = 0;
    try {
      if (this.peek() !== '{') throw this.unreadable('an object, { … },');
      const root = yield* this.readObject();
      if (this.peek() !== undefined) throw this.unreadable('nothing after its last }');
      return root;
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      const malformed = { ...place, expected: `JSON with ${error.message}` };
      const isTooLong = this.fields > maxFields;
      this.problems.push(isTooLong ? tooManyValues() : refuse('body_malformed', malformed));
      return undefined;
    }
  }

  private unreadable(expected: string): Unreadable {
    let line = 1;
    for (let at = 0; at < this.at; at += 1) if (this.text[at] === '\n') line += 1;
    const column = this.at - this.text.lastIndexOf('\n', this.at - 1);
    return new Unreadable(`${expected} at ${line === 1 ? '' : `line ${line}, `}column ${column}`);
  }

  private refuse(expected: string): void {
    if (this.problems.length >= maxProblems) return;
    this.problems.push(refuseParam(paramName(this.path), expected, this.line));
  }

  /** Skips white space and returns the next character, without consuming it. */
  private peek(): string | undefined {
    let next = this.text[this.at];
    while (next === ' ' || next === '\n' || next === '\r' || next === '\t') {
      this.at += 1;
      next = this.text[this.at];
    }
    return next;
  }

  /** Consumes the comma or the closing bracket after an item. Returns whether another item follows. */
  private hasMore(closing: '}' | ']'): boolean {
    const next = this.peek();
    if (next !== ',' && next !== closing) throw this.unreadable(`',' or '${closing}'`);
    this.at += 1;
    return next === ',';
  }

  /** Consumes an opening bracket. If nothing is inside, consumes the closing one too and returns false. */
  private opens(closing: '}' | ']'): boolean {
    // Checked before going deeper, so that no body can exhaust the stack.
    if (this.path.length >= maxDepth) throw this.unreadable(`at most ${maxDepth} levels`);
    this.at += 1;
    if (this.peek() !== closing) return true;
    this.at += 1;
    this.countField();
    return false;
  }

  private countField(): void {
    this.fields += 1;
    if (this.fields > maxFields) throw new Unreadable();
  }

  private *readBranch(): Steps<Decoded> {
    return this.peek() === '{' ? yield* this.readObject() : yield* this.readArray();
  }

  private isBranch(): boolean {
    return '{['.includes(this.peek() ?? ' ');
  }

  private readLeaf(): Decoded {
    this.countField();
    if (this.peek() !== '"') return this.readWord();
    const value = this.readString();
    const expected = expectedOfValue(value);
    if (expected !== undefined) this.refuse(expected);
    return value;
  }

  private *readObject(): Steps<DecodedObject> {
    const object: Record<string, Decoded> = Object.create(null);
    if (!this.opens('}')) return object;
    const names: string[] = [];
    do {
      if (names.length >= maxNames) throw this.unreadable(`at most ${maxNames} names in an object`);
      if (names.length > 0 && this.peek() === '}') throw this.unreadable('no comma before the }');
      if (this.peek() !== '"') throw this.unreadable('a name in double quotes');
      const name = this.readString();
      this.path.push(name);
      const expected = names.includes(name) ? 'sent once' : expectedOfName(name);
      names.push(name);
      if (expected !== undefined) this.refuse(expected);
      if (this.peek() !== ':') throw this.unreadable("':'");
      this.at += 1;
      const value = this.isBranch() ? yield* this.readBranch() : this.readLeaf();
      if (value !== null || !isOptionalAt(this.params, this.path)) object[name] = value;
      this.path.pop();
    } while (this.hasMore('}'));
    return object;
  }

  private *readArray(): Steps<readonly Decoded[]> {
    const list: Decoded[] = [];
    if (!this.opens(']')) return list;
    do {
      this.path.push(list.length);
      list.push(this.isBranch() ? yield* this.readBranch() : this.readLeaf());
      this.path.pop();
      yield;
    } while (this.hasMore(']'));
    return list;
  }

  private readString(): string {
    let end = this.at + 1;
    while (this.text[end] !== '"') {
      if (end >= this.text.length) throw this.unreadable('a closing quote for the string');
      end += this.text[end] === '\\' ? 2 : 1;
    }
    try {
      const value: string = JSON.parse(this.text.slice(this.at, end + 1));
      this.at = end + 1;
      return value;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw this.unreadable('a string with valid escapes');
    }
  }

  private readWord(): Decoded {
    word.lastIndex = this.at;
    const [text] = word.exec(this.text) ?? [];
    if (text === undefined) throw this.unreadable('a value');
    this.at += text.length;
    if (text === 'null') return null;
    if (text === 'true' || text === 'false') return text === 'true';
    if (text.length > maxNumberLength) {
      this.refuse(`a number of at most ${maxNumberLength} characters`);
    }
    return new DecodedNumber(text);
  }
}

const word = /null|true|false|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
