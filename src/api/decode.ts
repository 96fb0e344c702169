import type { z } from 'zod';
import { type Refusal, refuse, shortened } from '../domain/refusal.js';
import { decodeCsv } from './csvBody.js';
import { type Decoding, maxBodyBytes } from './decoded.js';
import { decodeForm } from './formBody.js';
import { decodeJson, decodeNdjson } from './jsonBody.js';
import type { Route } from './route.js';
import type { Steps } from './slices.js';

type Format = {
  readonly decode: (body: Buffer, params?: z.ZodObject, isNew?: boolean) => Steps<Decoding>;
  /** Whether each line of the body is an item, so that the body has no place for other parameters. */
  readonly isLines: boolean;
};

const formats: ReadonlyMap<string, Format> = new Map([
  ['application/x-www-form-urlencoded', { decode: decodeForm, isLines: false }],
  ['application/json', { decode: decodeJson, isLines: false }],
  ['application/x-ndjson', { decode: decodeNdjson, isLines: true }],
  ['application/jsonl', { decode: decodeNdjson, isLines: true }],
  ['text/csv', { decode: decodeCsv, isLines: true }],
]);

/** Formats alternatives as a British list, without a comma before the last one. */
export const alternatives = new Intl.ListFormat('en-GB', { type: 'disjunction' });

/**
 * Decodes a request body to its parameters, in time linear in its length and within the caps of decoded.ts.
 * An empty body has no parameters, whatever its type. Refusals: `content_type_unsupported` and
 * `body_too_large`; `body_malformed` for the whole body, an item or a cell; and `parameter_invalid` for each
 * parameter that cannot be decoded.
 *
 * @param contentType the Content-Type header, or the empty string if there is none
 * @param acceptsLineFormats whether to accept NDJSON and CSV, whose lines are the items of `payouts`
 * @param route decides how to read the body; if it creates an object, a null parameter counts as not sent
 */
export function* decodeInSteps(
  sent: Buffer,
  contentType: string,
  acceptsLineFormats = false,
  { params, path = '/:id' }: Partial<Pick<Route, 'params' | 'path'>> = {},
): Steps<Decoding> {
  const body = sent.subarray(0, 3).equals(byteOrderMark) ? sent.subarray(3) : sent;
  if (sent.length === 0) return Object.create(null);
  if (body.length > maxBodyBytes) {
    return [refuse('body_too_large', { expected: `at most ${maxBodyBytes} bytes` })];
  }
  const accepts = ({ isLines }: Format) => acceptsLineFormats || !isLines;
  const format = formatOf(contentType);
  if (format === undefined || !accepts(format)) {
    const types = [...formats].flatMap(([type, each]) => (accepts(each) ? [type] : []));
    const expected = `${alternatives.format(types)}, encoded as UTF-8`;
    const received = shortened(contentType, 100);
    return [refuse('content_type_unsupported', { param: 'Content-Type', expected, received })];
  }
  const type = format.isLines ? undefined : likelyType(body);
  const likely = formats.get(type ?? '');
  if (likely !== undefined && likely !== format && accepts(likely)) {
    const detail = `The body looks like ${type}: send Content-Type: ${type}.`;
    const expected = `a body in the format of its Content-Type, ${shortened(contentType, 100)}`;
    return [refuse('body_malformed', { expected, detail })];
  }
  return yield* format.decode(body, params, !path.includes(':id'));
}

/** Some editors and spreadsheets start UTF-8 files with it. */
const byteOrderMark = Buffer.from('\ufeff');

/** How much of a body is examined: enough for the first lines, which show its format. */
const examinedBytes = 4_096;

/** Patterns that identify a body for certain. Clients such as curl send everything as a form by default. */
const patterns: readonly (readonly [type: string, pattern: RegExp])[] = [
  ['application/x-ndjson', /^\{[^\n]*\}\s*\n\{/],
  ['application/json', /^(\{\s*["}]|\[\s*[{\]])/],
  ['application/x-www-form-urlencoded', /^[\w[\]%]+=/],
  ['text/csv', /^[\w[\]]+(,[\w[\]]+)+\r?\n/],
];

function likelyType(body: Buffer): string | undefined {
  const start = body.subarray(0, examinedBytes).toString('latin1').trimStart();
  return patterns.find(([, pattern]) => pattern.test(start))?.[0];
}

/** Whether decoding failed, so that the result is a list of refusals. */
export function isUndecoded(result: Decoding): result is readonly Refusal[] {
  return Array.isArray(result);
}

/**
 * Finds the format of a media type (RFC 9110, section 8.3.1). All its parameters except charset are ignored.
 */
export function formatOf(contentType: string): Format | undefined {
  const [type = '', ...parameters] = contentType.toLowerCase().split(';');
  const charset = parameters
    .map((parameter) => parameter.trim())
    .find((parameter) => parameter.startsWith('charset='));
  if (charset !== undefined && !/^charset="?utf-?8"?$/.test(charset)) return undefined;
  return formats.get(type.trim());
}
