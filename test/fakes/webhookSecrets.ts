import { Webhook } from 'standardwebhooks';
import type { ReceivedWebhook } from './receiver.js';

/** What verifies by the secrets that this process was shown: each endpoint's, and each rotation's. */
const verifiers: Webhook[] = [];

/** Remembers the secret of an answer of the API, or of an endpoint that a test makes, if there is one. */
export function rememberSecret({ secret }: { readonly secret?: unknown }): void {
  if (typeof secret === 'string' && secret.startsWith('whsec_')) {
    verifiers.push(new Webhook(secret));
  }
}

/** Throws unless each of the webhooks verifies by one of the secrets. */
export function assertGenuine(webhooks: readonly ReceivedWebhook[]): void {
  for (const { headers, body } of webhooks) {
    if (verifiers.some((verifier) => isGenuine(verifier, headers, body))) continue;
    throw new Error(`None of ${verifiers.length} secrets verifies ${headers['webhook-id']}.`);
  }
}

function isGenuine(verifier: Webhook, headers: ReceivedWebhook['headers'], body: string): boolean {
  try {
    verifier.verify(body, { ...headers });
    return true;
  } catch {
    return false;
  }
}
