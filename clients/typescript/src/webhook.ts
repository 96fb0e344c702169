import { Buffer } from 'node:buffer';
import { createHmac, createPublicKey, timingSafeEqual, verify } from 'node:crypto';
import type { WebhookEvent } from './types.js';

/** The webhook is not from Corridor, was modified or is too old: respond with 400 and do nothing. */
export class WebhookVerificationError extends Error {
  override readonly name = 'WebhookVerificationError';
}

/** Headers as represented by fetch, Node and most frameworks. */
export type WebhookHeaders =
  | { get(name: string): string | null }
  | { readonly [name: string]: string | readonly string[] | undefined };

/** As in Standard Webhooks: allows for clock differences and limits replays to five minutes. */
const toleranceSeconds = 5 * 60;

/**
 * Verifies a webhook according to Standard Webhooks 1.0 and returns its event. An endpoint with `batching`
 * receives several events per webhook: use {@link verifyWebhookEvents}.
 *
 * @param rawBody the body exactly as received, before any parsing
 * @param secrets the endpoint's secret, `whsec_…`, or a public key of the service, `whpk_…`, or several of
 *   them during a rotation. Null, which the API returns except for new endpoints, is a TypeError
 * @throws WebhookVerificationError if none of them verifies a signature of the last 5 minutes
 * @throws TypeError if the webhook is a batch of events
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
 * Verifies a webhook like {@link verifyWebhook} and returns its events ordered by sequence: up to 100 if
 * the endpoint has `batching`, otherwise one. Delivery is at least once, so an event may be repeated in
 * this or another batch: ignore events whose `id` you have already processed.
 *
 * @throws WebhookVerificationError if none of the secrets verifies a signature of the last 5 minutes
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
  // NaN is never within the tolerance.
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
 * Returns the challenge of a webhook that verifies your endpoint, undefined for every other webhook.
 * Respond with a 2xx status and only the challenge as the body.
 *
 * @param event the result of verifyWebhook, so that you never answer a challenge from anyone else
 * @param endpointId the ID of your endpoint, or of several. For any other endpoint the result is
 *   undefined: the public keys sign for all accounts, so a stranger may have registered your URL as their
 *   own endpoint
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

/** One or two of each kind are sent. A header with more only wants to waste CPU time. */
const mostSignatures = 10;

type Verifier = {
  /** The version of the signatures that it verifies. */
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
  // With an empty key, anyone could forge a signature.
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
