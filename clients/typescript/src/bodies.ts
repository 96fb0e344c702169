import type { Body } from './transport.js';

/** The text of a batch: a string, or an async iterable of its chunks, such as a file stream. */
export type TextSource = string | AsyncIterable<string | Uint8Array>;

/** Four times the API's maximum body size. Anything larger is a mistake and must not fill the memory. */
const mostCharacters = 4 * 8 * 1024 * 1024;

/** Writes one value as JSON. */
export function jsonBody(value: unknown): Body {
  return { contentType: 'application/json', text: JSON.stringify(value) };
}

/**
 * Writes items as NDJSON, reading them one by one. The text is kept until the response arrives, because
 * a retry must send the same bytes and an iterable can be read only once.
 */
export async function ndjsonBody(items: Iterable<object> | AsyncIterable<object>): Promise<Body> {
  const lines: string[] = [];
  let length = 0;
  for await (const item of items) {
    const line = `${JSON.stringify(item)}\n`;
    length = checkedLength(length + line.length);
    lines.push(line);
  }
  return { contentType: 'application/x-ndjson', text: lines.join('') };
}

/** Reads a whole CSV text into memory, also because a retry must send the same bytes. */
export async function csvBody(source: TextSource): Promise<Body> {
  if (typeof source === 'string') return { contentType: 'text/csv', text: source };
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const pieces: string[] = [];
  let length = 0;
  for await (const piece of source) {
    const text = typeof piece === 'string' ? piece : decoder.decode(piece, { stream: true });
    length = checkedLength(length + text.length);
    pieces.push(text);
  }
  pieces.push(decoder.decode());
  return { contentType: 'text/csv', text: pieces.join('') };
}

function checkedLength(length: number): number {
  if (length <= mostCharacters) return length;
  throw new RangeError(`A batch of more than ${mostCharacters} characters: split it into several.`);
}
