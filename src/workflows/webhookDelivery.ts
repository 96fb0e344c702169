import { condition, continueAsNew } from '@temporalio/workflow';
import { flagOf } from './commands.js';
import { deliverSignal, type WebhookDeliveryInput } from './messages.js';
import { retryDeliveries, shouldContinueAsNew } from './proxies.js';

/**
 * Retries the deliveries of an endpoint: one workflow per endpoint, however many events are
 * pending. It works from the rows, sleeps until the next attempt is due, and ends when no delivery
 * is pending.
 */
export async function webhookDelivery({ endpointId }: WebhookDeliveryInput): Promise<void> {
  const signal = flagOf(deliverSignal, 'The endpoint has a new pending delivery; carries no data.');
  for (;;) {
    signal.isUp = false;
    const { nextInMs } = await retryDeliveries.deliverDue({ endpointId });
    if (nextInMs === null) {
      if (!signal.isUp) return;
    } else if (nextInMs > 0) {
      // A signal does not shorten the backoff: only due deliveries are attempted.
      await condition(() => signal.isUp, nextInMs);
    }
    if (shouldContinueAsNew()) await continueAsNew<typeof webhookDelivery>({ endpointId });
  }
}
