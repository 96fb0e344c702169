import type { WebhookProbeInput } from './messages.js';
import { probes } from './proxies.js';

/**
 * Has a worker send a challenge or a test, as the API may not reach receivers. One at a time of each
 * endpoint; what came of it is in the row.
 */
export async function webhookProbe(input: WebhookProbeInput): Promise<void> {
  await probes.sendProbe(input);
}
