import { type Refusal, refuse } from '../domain/refusal.js';
import { decodeCsv } from './csvBody.js';
import { type DecodedObject, maxBodyBytes } from './decoded.js';
import { decodeForm } from './formBody.js';
import { decodeJson, decodeNdjson } from './jsonBody.js';
import type { Steps } from './turns.js';

/** The parameters, or why there are none. */
export type Decoding = DecodedObject | readonly Refusal[];

export type BodyStyle = 'form' | 'json' | 'ndjson' | 'csv';

const styles: ReadonlyMap<string, BodyStyle> = new Map([
  ['application/x-www-form-urlencoded', 'form'],
  ['application/json', 'json'],
  ['application/x-ndjson', 'ndjson'],
  ['application/jsonl', 'ndjson'],
  ['text/csv', 'csv'],
]);

const decoders = {
  form: decodeForm,
  json: decodeJson,
  ndjson: decodeNdjson,
  csv: decodeCsv,
} as const satisfies Record<BodyStyle, (body: Buffer) => Steps<Decoding>>;

/**
 * Decodes a request body to its parameters, in time linear in its length and within the
 * caps of decoded.ts. An empty body is no parameters, whatever its type. Refusals:
 * `content_type_unsupported`, `body_too_large`, `body_malformed` for the whole, for an item or
 * for a cell, and `parameter_invalid` for each parameter that cannot be decoded.
 *
 * @param contentType the Content-Type header, or the empty string if there is none
 * @param acceptsLineFormats whether NDJSON and CSV are taken, whose lines are the items of `payouts`
 */
export function* decodeInSteps(
  body: Buffer,
  contentType: string,
  acceptsLineFormats = false,
): Steps<Decoding> {
  if (body.length === 0) return Object.create(null);
  if (body.length > maxBodyBytes) {
    return [refuse('body_too_large', { expected: `at most ${maxBodyBytes} bytes` })];
  }
  const style = bodyStyle(contentType);
  if (style === undefined || (isLines(style) && !acceptsLineFormats)) {
    const taken = [...styles].filter(([, each]) => acceptsLineFormats || !isLines(each));
    const [last, ...others] = taken.map(([type]) => type).reverse();
    return [
      refuse('content_type_unsupported', {
        expected: `${others.reverse().join(', ')} or ${last}, in UTF-8`,
        received: contentType.slice(0, 100),
      }),
    ];
  }
  return yield* decoders[style](body);
}

/** Whether decoding ended in refusals. */
export function isUndecoded(result: Decoding): result is readonly Refusal[] {
  return Array.isArray(result);
}

/** Whether the lines of such a body are items, so that it has no place for anything else. */
export function isLines(style: BodyStyle | undefined): boolean {
  return style === 'ndjson' || style === 'csv';
}

/** Reads a media type (RFC 9110, section 8.3.1); parameters but charset mean nothing here. */
export function bodyStyle(contentType: string): BodyStyle | undefined {
  const [type = '', ...parameters] = contentType.toLowerCase().split(';');
  const charset = parameters
    .map((parameter) => parameter.trim())
    .find((parameter) => parameter.startsWith('charset='));
  if (charset !== undefined && !/^charset="?utf-?8"?$/.test(charset)) return undefined;
  return styles.get(type.trim());
}
