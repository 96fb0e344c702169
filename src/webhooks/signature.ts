import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';

/** The headers of one webhook as Standard Webhooks 1.0 names them. */
export type WebhookHeaders = {
  readonly 'webhook-id': string;
  readonly 'webhook-timestamp': string;
  readonly 'webhook-signature': string;
};

const secretPrefix = 'whsec_';
// Standard Webhooks 1.0 asks for 24 to 64 bytes; 32 are as many as SHA-256 puts out.
const secretBytes = 32;
const leastSecretBytes = 24;
const mostSecretBytes = 64;
// How far the clocks of sender and receiver may be apart; the reference libraries' number.
const toleranceSeconds = 5 * 60;
// One signature for each secret in rotation; more are a header made to burn time.
const maxSignatures = 10;

/** Makes the secret of an endpoint: `whsec_` and 32 random bytes in base64. */
export function createWebhookSecret(): string {
  return secretPrefix + randomBytes(secretBytes).toString('base64');
}

/**
 * The `webhook-signature` header (Standard Webhooks 1.0): one `v1` HMAC-SHA256 for each
 * secret, so that while a secret is being replaced receivers may hold the old or the new.
 *
 * @param timestampSeconds Unix time of this attempt, not of the event
 * @param body the very bytes that are sent, as text
 */
export function signWebhook(message: {
  readonly id: string;
  readonly timestampSeconds: number;
  readonly body: string;
  readonly secrets: readonly string[];
}): string {
  const signed = `${message.id}.${message.timestampSeconds}.${message.body}`;
  return message.secrets.map((secret) => `v1,${hmac(secret, signed).toString('base64')}`).join(' ');
}

/**
 * Whether a webhook was signed with one of the secrets and is at most 5 minutes old, or
 * ahead. Signatures are compared in constant time.
 */
export function verifyWebhook(received: {
  readonly headers: WebhookHeaders;
  readonly body: string;
  readonly secrets: readonly string[];
  readonly nowSeconds: number;
}): boolean {
  const { headers, body, secrets, nowSeconds } = received;
  const timestamp = headers['webhook-timestamp'];
  if (!/^\d{1,12}$/.test(timestamp)) return false;
  if (Math.abs(nowSeconds - Number.parseInt(timestamp, 10)) > toleranceSeconds) return false;
  const signed = `${headers['webhook-id']}.${timestamp}.${body}`;
  const signatures = headers['webhook-signature']
    .split(' ', maxSignatures)
    .filter((signature) => signature.startsWith('v1,'))
    .map((signature) => Buffer.from(signature.slice('v1,'.length), 'base64'));
  return secrets
    .map((secret) => hmac(secret, signed))
    .some((expected) =>
      signatures.some(
        (signature) => signature.length === expected.length && timingSafeEqual(signature, expected),
      ),
    );
}

function hmac(secret: string, signed: string): Buffer {
  const start = secret.startsWith(secretPrefix) ? secretPrefix.length : 0;
  const key = Buffer.from(secret.slice(start), 'base64');
  // A secret of another length is a broken row, and an empty key would sign for anybody.
  if (key.length < leastSecretBytes || key.length > mostSecretBytes) {
    throw new Error(`a webhook secret has 24 to 64 bytes, this one has ${key.length}`);
  }
  return createHmac('sha256', key).update(signed).digest();
}
