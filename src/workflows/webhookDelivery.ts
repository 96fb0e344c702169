import { condition, continueAsNew, setHandler, workflowInfo } from '@temporalio/workflow';
import { deliverSignal, type WebhookDeliveryInput } from './messages.js';
import { ladder } from './proxies.js';

/**
 * Everything an endpoint is still owed after the first attempt: one workflow an endpoint,
 * however many events wait. It works from the rows, sleeps until the next attempt is due,
 * and ends when nothing is owed.
 */
export async function webhookDelivery({ endpointId }: WebhookDeliveryInput): Promise<void> {
  let nudged = false;
  setHandler(
    deliverSignal,
    () => {
      nudged = true;
    },
    { description: 'Something new is owed to the endpoint; carries no data.' },
  );
  for (;;) {
    nudged = false;
    const { nextInMs } = await ladder.deliverDue({ endpointId });
    if (nextInMs === null) {
      if (!nudged) return;
    } else if (nextInMs > 0) {
      // A nudge does not cut the ladder short, it only lets what is due be taken.
      await condition(() => nudged, nextInMs);
    }
    if (workflowInfo().continueAsNewSuggested) {
      await continueAsNew<typeof webhookDelivery>({ endpointId });
    }
  }
}
