import { verifyAsync } from '@noble/ed25519';
import { Webhook } from 'standardwebhooks';
import { publicKeySet } from '../../src/webhooks/signature.js';
import { webhookKeys } from '../fixtures/webhookKeys.js';
import type { ReceivedWebhook } from './receiver.js';

/** What verifies by the secrets that this process was shown: each endpoint's, and each rotation's. */
const verifiers: Webhook[] = [];

/** Remembers the secret of an answer of the API, or of an endpoint that a test makes, if there is one. */
export function rememberSecret({ secret }: { readonly secret?: unknown }): void {
  if (typeof secret === 'string' && secret.startsWith('whsec_')) {
    verifiers.push(new Webhook(secret));
  }
}

/**
 * Throws unless each of the webhooks verifies by one of the secrets, and by the service's public keys
 * where it has such a signature as well: by libraries that share no code with ours.
 */
export async function assertGenuine(webhooks: readonly ReceivedWebhook[]): Promise<void> {
  for (const webhook of webhooks) {
    const id = webhook.headers['webhook-id'];
    const index = verifiers.findIndex((verifier) => isGenuine(verifier, webhook));
    if (index < 0) throw new Error(`None of ${verifiers.length} secrets verifies ${id}.`);
    // First from now on: a receiver gets most of its webhooks by one secret.
    verifiers.unshift(...verifiers.splice(index, 1));
    for (const signature of (webhook.headers['webhook-signature'] ?? '').split(' ')) {
      if (!signature.startsWith('v1a,') || (await isOurs(webhook, signature.slice(4)))) continue;
      throw new Error(`No published key verifies ${id}.`);
    }
  }
}

/** Whatever the time is by now: a test on a slow machine ends more than five minutes after its first webhook. */
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
