import { Buffer } from 'node:buffer';
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { WebhookEvent } from './types.js';

/** The webhook is not one of ours, was changed, or is too old: answer 400 and do nothing. */
export class WebhookVerificationError extends Error {
  override readonly name = 'WebhookVerificationError';
}

/** As fetch, Node and most frameworks have them. */
export type WebhookHeaders =
  | { get(name: string): string | null }
  | { readonly [name: string]: string | readonly string[] | undefined };

/** Standard Webhooks: a captured webhook is worthless after five minutes, and clocks differ. */
const toleranceSeconds = 5 * 60;

/**
 * Verifies a webhook by Standard Webhooks 1.0 and returns its event.
 *
 * @param rawBody exactly what was received, before any parsing
 * @param secrets the endpoint's `whsec_…`, or several while one replaces another; an endpoint that is
 *   not new has null, which is a TypeError
 * @throws WebhookVerificationError when no secret made one of its signatures within 5 minutes
 */
export function verifyWebhook(
  rawBody: string | Uint8Array,
  headers: WebhookHeaders,
  secrets: string | readonly string[] | null,
): WebhookEvent {
  const id = headerOf(headers, 'webhook-id');
  const timestamp = headerOf(headers, 'webhook-timestamp');
  const signatures = headerOf(headers, 'webhook-signature');
  const sentSeconds = /^\d{1,12}$/.test(timestamp) ? Number.parseInt(timestamp, 10) : Number.NaN;
  // Not a number is never within the tolerance.
  if (!(Math.abs(Date.now() / 1_000 - sentSeconds) <= toleranceSeconds)) {
    throw new WebhookVerificationError('The webhook is older or newer than five minutes.');
  }
  const keys = (Array.isArray(secrets) ? secrets : [secrets ?? '']).map(keyOfSecret);
  const sent = signatures.split(' ').flatMap((signature) => {
    const [version, digest = ''] = signature.split(',', 2);
    return version === 'v1' ? [Buffer.from(digest, 'base64')] : [];
  });
  const isGenuine = keys.some((key) => {
    const hmac = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(rawBody);
    const expected = hmac.digest();
    return sent.some((one) => one.length === expected.length && timingSafeEqual(one, expected));
  });
  if (!isGenuine) throw new WebhookVerificationError('No signature of the webhook is valid.');
  return JSON.parse(typeof rawBody === 'string' ? rawBody : new TextDecoder().decode(rawBody));
}

function keyOfSecret(secret: string): Buffer {
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
  // An empty key would verify whatever anybody signs with it.
  if (key.length === 0) throw new TypeError('A webhook secret is empty: it looks like whsec_….');
  return key;
}

function headerOf(headers: WebhookHeaders, name: string): string {
  const value = readHeader(headers, name);
  if (value === undefined || value === '') {
    throw new WebhookVerificationError(`The header ${name} is missing.`);
  }
  return value;
}

function readHeader(headers: WebhookHeaders, name: string): string | undefined {
  if (hasGet(headers)) return headers.get(name) ?? undefined;
  const entry = Object.entries(headers).find(([key]) => key.toLowerCase() === name);
  return typeof entry?.[1] === 'string' ? entry[1] : entry?.[1]?.join(' ');
}

function hasGet(headers: WebhookHeaders): headers is { get(name: string): string | null } {
  return typeof headers['get'] === 'function';
}
