import { isUtf8 } from 'node:buffer';
import { DecodedNumber } from '../contract/decodedNumber.js';
import { type Refusal, refuse } from '../domain/refusal.js';
import {
  type Decoded,
  type DecodedObject,
  expectedOfName,
  expectedOfValue,
  maxDepth,
  maxFields,
  maxNames,
  maxNumberLength,
  maxProblems,
  paramName,
  refuseParam,
} from './decoded.js';
import type { Steps } from './turns.js';

/** Stops the reading where the text is no JSON; never leaves this file. */
class Unreadable extends Error {
  constructor(expected: string, at: number) {
    super(`${expected} at character ${at + 1}`);
  }
}

/**
 * Decodes `application/json` (RFC 8259), the root being an object. JSON.parse would lose
 * what matters here: the text of a number, the first of two equal names, and where a
 * refused value stood. So the structure is read here, and JSON.parse reads the strings.
 */
export function* decodeJson(body: Buffer): Steps<DecodedObject | readonly Refusal[]> {
  if (!isUtf8(body)) return [refuse('body_malformed', { expected: 'JSON in UTF-8' })];
  const reader = new JsonReader();
  const decoded = yield* reader.readText(body.toString('utf8'));
  return decoded === undefined || reader.problems.length > 0 ? reader.problems : decoded;
}

/** Reads one JSON text after another, within one set of caps for all of them. */
export class JsonReader {
  readonly problems: Refusal[] = [];
  private text = '';
  private path: (string | number)[] = [];
  private at = 0;
  private fields = 0;

  /** Whether nothing more may be read: the caps hold, or as much is wrong as an answer lists. */
  get isFull(): boolean {
    return this.fields > maxFields || this.problems.length >= maxProblems;
  }

  /**
   * Reads an object that is all of a text; undefined, with a problem more, where it is none.
   *
   * @param path where the object stands in the body
   * @param place added to the problem of a text that is no JSON
   */
  *readText(
    text: string,
    path: readonly (string | number)[] = [],
    place: Pick<Refusal, 'param' | 'detail'> = {},
  ): Steps<DecodedObject | undefined> {
    this.text = text;
    this.path = [...path];
    this.at = 0;
    try {
      return yield* this.readRoot();
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      const expected = `JSON with ${error.message}`;
      this.problems.push(refuse('body_malformed', { ...place, expected }));
      return undefined;
    }
  }

  private *readRoot(): Steps<DecodedObject> {
    if (this.peek() !== '{') throw this.unreadable('an object as the root');
    const root = yield* this.readObject();
    if (this.peek() !== undefined) throw this.unreadable('nothing after the root object');
    return root;
  }

  private unreadable(expected: string): Unreadable {
    return new Unreadable(expected, this.at);
  }

  private refuse(expected: string): void {
    if (this.problems.length >= maxProblems) return;
    this.problems.push(refuseParam(paramName(this.path), expected));
  }

  /** The next character that is not white space; it stays unread. */
  private peek(): string | undefined {
    let next = this.text[this.at];
    while (next === ' ' || next === '\n' || next === '\r' || next === '\t') {
      this.at += 1;
      next = this.text[this.at];
    }
    return next;
  }

  private take(expected: ':'): void {
    if (this.peek() !== expected) throw this.unreadable(`'${expected}'`);
    this.at += 1;
  }

  /** After an item: takes the comma before another one, or the bracket that closes. */
  private hasMore(closing: '}' | ']'): boolean {
    const next = this.peek();
    if (next !== ',' && next !== closing) throw this.unreadable(`',' or '${closing}'`);
    this.at += 1;
    return next === ',';
  }

  /** Takes an opening bracket; answers false, and takes the closing one, if nothing is inside. */
  private opens(closing: '}' | ']'): boolean {
    // The depth is checked before going deeper, so that no body can exhaust the stack.
    if (this.path.length >= maxDepth) throw this.unreadable(`at most ${maxDepth} levels`);
    this.at += 1;
    if (this.peek() !== closing) return true;
    this.at += 1;
    this.countField();
    return false;
  }

  private countField(): void {
    this.fields += 1;
    if (this.fields > maxFields) throw this.unreadable(`at most ${maxFields} values`);
  }

  private *readBranch(): Steps<Decoded> {
    return this.peek() === '{' ? yield* this.readObject() : yield* this.readArray();
  }

  private isBranch(): boolean {
    const next = this.peek();
    return next === '{' || next === '[';
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
    let names = 0;
    do {
      if (++names > maxNames) throw this.unreadable(`at most ${maxNames} names in an object`);
      if (this.peek() !== '"') throw this.unreadable('a name in double quotes');
      const name = this.readString();
      this.path.push(name);
      const expected = name in object ? 'to be sent once' : expectedOfName(name);
      if (expected !== undefined) this.refuse(expected);
      this.take(':');
      object[name] = this.isBranch() ? yield* this.readBranch() : this.readLeaf();
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
    const literal = this.text.slice(this.at, end + 1);
    const value = parseString(literal);
    if (value === undefined) throw this.unreadable('a string with valid escapes');
    this.at = end + 1;
    return value;
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

/** The text of a string literal, or undefined where an escape or a control is not JSON. */
function parseString(literal: string): string | undefined {
  try {
    const value: unknown = JSON.parse(literal);
    return typeof value === 'string' ? value : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
