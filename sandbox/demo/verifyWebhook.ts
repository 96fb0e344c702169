import { timingSafeEqual } from 'node:crypto';
import { webhookHmac } from '../../src/webhooks/signature.js';

/** The headers of a webhook, as named in Standard Webhooks 1.0. */
export type WebhookHeaders = {
  readonly 'webhook-id': string;
  readonly 'webhook-timestamp': string;
  readonly 'webhook-signature': string;
};

// Maximum clock difference between sender and receiver, as in the reference libraries.
const toleranceSeconds = 5 * 60;
// One signature for each secret in rotation. A header with more only wants to waste our CPU time.
const maxSignatures = 10;

/**
 * Returns whether a webhook was signed with one of the secrets and its timestamp is within 5 minutes of
 * now. Compares signatures in constant time.
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
    .map((secret) => webhookHmac(secret, signed))
    .some((expected) =>
      signatures.some(
        (signature) => signature.length === expected.length && timingSafeEqual(signature, expected),
      ),
    );
}
