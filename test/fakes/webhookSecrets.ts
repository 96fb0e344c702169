import { verifyAsync } from '@noble/ed25519';
import { Webhook } from 'standardwebhooks';
import { publicKeySet } from '../../src/webhooks/signature.js';
import { webhookKeys } from '../fixtures/webhookKeys.js';
import type { ReceivedWebhook } from './receiver.js';

/** Verifiers for every secret that this process has seen: one per endpoint and per rotation. */
const verifiers: Webhook[] = [];

/** Remembers the secret, if any, of an API answer or of an endpoint that a test creates. */
export function rememberSecret({ secret }: { readonly secret?: unknown }): void {
  if (typeof secret === 'string' && secret.startsWith('whsec_')) {
    verifiers.push(new Webhook(secret));
  }
}

/**
 * Throws unless each webhook's signature verifies with one of the secrets and, where it also has an
 * asymmetric signature, with the service's public keys. It uses libraries that share no code with ours.
 */
export async function assertGenuine(webhooks: readonly ReceivedWebhook[]): Promise<void> {
  for (const webhook of webhooks) {
    const id = webhook.headers['webhook-id'];
    const index = verifiers.findIndex((verifier) => isGenuine(verifier, webhook));
    if (index < 0) throw new Error(`None of ${verifiers.length} secrets verifies ${id}.`);
    // Moved to the front, because a receiver gets most of its webhooks signed with one secret.
    verifiers.unshift(...verifiers.splice(index, 1));
    for (const signature of (webhook.headers['webhook-signature'] ?? '').split(' ')) {
      if (!signature.startsWith('v1a,') || (await isOurs(webhook, signature.slice(4)))) continue;
      throw new Error(`No published key verifies ${id}.`);
    }
  }
}

/** Ignores the webhook's age: on a slow machine a test may end more than five minutes after its first one. */
function isGenuine(verifier: Webhook, { headers, body }: ReceivedWebhook): boolean {
  const sentAt = new Date(Number(headers['webhook-timestamp']) * 1000);
  const signature = verifier.sign(headers['webhook-id'] ?? '', sentAt, body);
  return (headers['webhook-signature'] ?? '').split(' ').includes(signature);
}

async function isOurs({ headers, body }: ReceivedWebhook, signature: string): Promise<boolean> {
  const signed = Buffer.from(`${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`);
  for (const { x } of publicKeySet(webhookKeys).keys) {
    const key = Buffer.from(x, 'base64url');
    if (await verifyAsync(Buffer.from(signature, 'base64'), signed, key)) return true;
  }
  return false;
}
