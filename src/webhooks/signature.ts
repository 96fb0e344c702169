import { createHmac, createSecretKey, randomBytes } from 'node:crypto';

const secretPrefix = 'whsec_';
// Standard Webhooks 1.0 asks for 24 to 64 bytes; 32 are as many as SHA-256 puts out.
const secretBytes = 32;
const leastSecretBytes = 24;
const mostSecretBytes = 64;

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
  return message.secrets
    .map((secret) => `v1,${webhookHmac(secret, signed).toString('base64')}`)
    .join(' ');
}

/** The HMAC-SHA256 of a text by the secret of an endpoint. */
export function webhookHmac(secret: string, signed: string): Buffer {
  const start = secret.startsWith(secretPrefix) ? secretPrefix.length : 0;
  const key = Buffer.from(secret.slice(start), 'base64');
  // A secret of another length is a broken row, and an empty key would sign for anybody.
  if (key.length < leastSecretBytes || key.length > mostSecretBytes) {
    throw new Error(`a webhook secret has 24 to 64 bytes, this one has ${key.length}`);
  }
  // A key object: Node looks at a plain buffer for longer than the hash takes.
  return createHmac('sha256', createSecretKey(key)).update(signed).digest();
}
