import type { WebhookProbeInput } from './messages.js';
import { probes } from './proxies.js';

/**
 * Has a worker send a challenge or a test, because the API must not contact receivers. Only one runs at
 * a time per endpoint; the row has the outcome.
 */
export async function webhookProbe(input: WebhookProbeInput): Promise<void> {
  await probes.sendProbe(input);
}
