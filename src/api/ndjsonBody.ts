import { isUtf8 } from 'node:buffer';
import { type Refusal, refuse } from '../domain/refusal.js';
import { type DecodedObject, paramName } from './decoded.js';
import { JsonReader } from './jsonBody.js';
import type { Steps } from './turns.js';

/**
 * Decodes `application/x-ndjson`, one item of `payouts` a line, each a JSON object. Lines end
 * with LF or CR LF, and blank ones are skipped. One line that is no JSON does not hide the
 * next: each is refused by its item, with its line in `detail`.
 */
export function* decodeNdjson(body: Buffer): Steps<DecodedObject | readonly Refusal[]> {
  // Where a byte is not UTF-8, Latin-1 has one character a byte, and its line can be named.
  const encoding = isUtf8(body) ? 'utf8' : 'latin1';
  const text = body.toString(encoding);
  const reader = new JsonReader();
  const payouts: (DecodedObject | undefined)[] = [];
  let number = 1;
  for (let start = 0; start < text.length && !reader.isFull; number += 1) {
    const feed = text.indexOf('\n', start);
    const end = feed < 0 ? text.length : feed;
    if (!isBlank(text, start, end)) {
      const line = text.slice(start, end);
      const isText = encoding === 'utf8' || isUtf8(Buffer.from(line, encoding));
      payouts.push(yield* readLine(reader, line, { index: payouts.length, number, isText }));
    }
    start = end + 1;
    yield;
  }
  if (reader.problems.length > 0) return reader.problems;
  return Object.assign(Object.create(null), { payouts });
}

type Place = { readonly index: number; readonly number: number; readonly isText: boolean };

function* readLine(
  reader: JsonReader,
  line: string,
  { index, number, isText }: Place,
): Steps<DecodedObject | undefined> {
  const path = ['payouts', index];
  const place = { param: paramName(path), detail: `Line ${number} of the body.` };
  if (isText) return yield* reader.readText(line, path, place);
  reader.problems.push(refuse('body_malformed', { ...place, expected: 'JSON in UTF-8' }));
  return undefined;
}

/** White space of JSON and nothing else; without a copy, as a body may be 8 million lines. */
function isBlank(text: string, start: number, end: number): boolean {
  let at = start;
  while (at < end && ' \t\r'.includes(text.charAt(at))) at += 1;
  return at === end;
}
