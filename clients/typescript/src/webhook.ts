import { Buffer } from 'node:buffer';
import { createHmac, createPublicKey, timingSafeEqual, verify } from 'node:crypto';
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
 * Verifies a webhook by Standard Webhooks 1.0 and returns its event. An endpoint with `batching` gets
 * several in one webhook: use {@link verifyWebhookEvents}.
 *
 * @param rawBody exactly what was received, before any parsing
 * @param secrets the endpoint's `whsec_…`, or public keys of the service, `whpk_…`; or several, while
 *   one replaces another; an endpoint that is not new has null, which is a TypeError
 * @throws WebhookVerificationError when none of them verifies a signature of the last 5 minutes
 * @throws TypeError when the webhook is a batch of events
 */
export function verifyWebhook(
  rawBody: string | Uint8Array,
  headers: WebhookHeaders,
  secrets: string | readonly string[] | null,
): WebhookEvent {
  const message = verifiedMessage(rawBody, headers, secrets);
  if (message.type === 'event.batch') {
    throw new TypeError('The webhook is a batch of events: use verifyWebhookEvents.');
  }
  return message;
}

/**
 * Verifies a webhook as {@link verifyWebhook} does and returns its events by their sequence: up to
 * 100 where the endpoint has `batching`, or one. Any of them may come again, in this or in another
 * batch: ignore those whose `id` you have processed.
 *
 * @throws WebhookVerificationError when none of the secrets verifies a signature of the last 5 minutes
 */
export function verifyWebhookEvents(
  rawBody: string | Uint8Array,
  headers: WebhookHeaders,
  secrets: string | readonly string[] | null,
): readonly WebhookEvent[] {
  const message = verifiedMessage(rawBody, headers, secrets);
  return message.type === 'event.batch' ? message.data : [message];
}

type WebhookBatch = { readonly type: 'event.batch'; readonly data: readonly WebhookEvent[] };

function verifiedMessage(
  rawBody: string | Uint8Array,
  headers: WebhookHeaders,
  secrets: string | readonly string[] | null,
): WebhookEvent | WebhookBatch {
  const id = headerOf(headers, 'webhook-id');
  const timestamp = headerOf(headers, 'webhook-timestamp');
  const signatures = headerOf(headers, 'webhook-signature');
  const sentSeconds = /^\d{1,12}$/.test(timestamp) ? Number.parseInt(timestamp, 10) : Number.NaN;
  // Not a number is never within the tolerance.
  if (!(Math.abs(Date.now() / 1_000 - sentSeconds) <= toleranceSeconds)) {
    throw new WebhookVerificationError('The webhook is older or newer than five minutes.');
  }
  const verifiers = (Array.isArray(secrets) ? secrets : [secrets ?? '']).map(verifierOf);
  const sent = signatures.split(' ', mostSignatures).map((signature) => {
    const [version, bytes = ''] = signature.split(',', 2);
    return { version, signature: Buffer.from(bytes, 'base64') };
  });
  const body = typeof rawBody === 'string' ? Buffer.from(rawBody) : rawBody;
  const signed = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body]);
  const isGenuine = verifiers.some(({ version, isSigned }) =>
    sent.some((one) => one.version === version && isSigned(signed, one.signature)),
  );
  if (!isGenuine) throw new WebhookVerificationError('No signature of the webhook is valid.');
  return JSON.parse(typeof rawBody === 'string' ? rawBody : new TextDecoder().decode(rawBody));
}

/**
 * What to answer to a webhook that verifies your endpoint: a 2xx response with this alone as its body.
 * Undefined for every other webhook.
 *
 * @param event what verifyWebhook has returned: a challenge that anybody else has sent is not answered
 * @param endpointId the id of the endpoint that this receiver is for, or of several. The challenge of
 *   any other is undefined: the public keys sign for all accounts, so a stranger may have added your
 *   URL as an endpoint of his own
 */
export function challengeOf(
  event: { readonly type: string; readonly data: object },
  endpointId: string | readonly string[],
): string | undefined {
  const { type, data } = event;
  if (type !== 'webhook_endpoint.challenge') return undefined;
  const { challenge, webhook_endpoint: named }: ChallengeData = data;
  const isYours = typeof named === 'string' && [endpointId].flat().includes(named);
  return isYours && typeof challenge === 'string' ? challenge : undefined;
}

type ChallengeData = { readonly challenge?: unknown; readonly webhook_endpoint?: unknown };

/** One or two of each kind are sent; more would be a header that is made to burn time. */
const mostSignatures = 10;

type Verifier = {
  /** Which signatures of the header it verifies. */
  readonly version: 'v1' | 'v1a';
  readonly isSigned: (signed: Buffer, signature: Buffer) => boolean;
};

function verifierOf(secret: string): Verifier {
  if (secret.startsWith('whpk_')) {
    const x = Buffer.from(secret.slice('whpk_'.length), 'base64').toString('base64url');
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
    return { version: 'v1a', isSigned: (signed, one) => verify(null, signed, key, one) };
  }
  const key = keyOfSecret(secret);
  const isSigned = (signed: Buffer, one: Buffer) => {
    const expected = createHmac('sha256', key).update(signed).digest();
    return one.length === expected.length && timingSafeEqual(one, expected);
  };
  return { version: 'v1', isSigned };
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
