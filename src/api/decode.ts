import { type Refusal, refuse } from '../domain/refusal.js';
import { type DecodedObject, maxBodyBytes } from './decoded.js';
import { decodeForm } from './formBody.js';
import { decodeJson } from './jsonBody.js';

export type BodyStyle = 'form' | 'json';

/**
 * Decodes a request body to its parameters, in time linear in its length and within the
 * caps of decoded.ts. An empty body is no parameters, whatever its type. Refusals:
 * `content_type_unsupported`, `body_too_large`, `body_malformed` for the whole, and
 * `parameter_invalid` for each parameter that cannot be decoded.
 *
 * @param contentType the Content-Type header, or the empty string if there is none
 */
export function decodeBody(body: Buffer, contentType: string): DecodedObject | readonly Refusal[] {
  if (body.length === 0) return Object.create(null);
  if (body.length > maxBodyBytes) {
    return [refuse('body_too_large', { expected: `at most ${maxBodyBytes} bytes` })];
  }
  const style = bodyStyle(contentType);
  if (style === undefined) {
    return [
      refuse('content_type_unsupported', {
        expected: 'application/x-www-form-urlencoded or application/json, in UTF-8',
        received: contentType.slice(0, 100),
      }),
    ];
  }
  return style === 'form' ? decodeForm(body) : decodeJson(body);
}

/** Tells the refusals of decodeBody from what it decoded. */
export function isUndecoded(
  result: DecodedObject | readonly Refusal[],
): result is readonly Refusal[] {
  return Array.isArray(result);
}

/** Reads a media type (RFC 9110, section 8.3.1); parameters but charset mean nothing here. */
export function bodyStyle(contentType: string): BodyStyle | undefined {
  const [type, ...parameters] = contentType.toLowerCase().split(';');
  const charset = parameters
    .map((parameter) => parameter.trim())
    .find((parameter) => parameter.startsWith('charset='));
  if (charset !== undefined && !/^charset="?utf-?8"?$/.test(charset)) return undefined;
  if (type?.trim() === 'application/x-www-form-urlencoded') return 'form';
  return type?.trim() === 'application/json' ? 'json' : undefined;
}
