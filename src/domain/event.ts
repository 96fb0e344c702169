/** What integrators can subscribe to. */
export const eventTypes = [
  'payout.sent',
  'payout.settled',
  'payout.failed',
  'payout.returned',
  'payout.canceled',
  'batch.completed',
  'webhook_endpoint.disabled',
] as const;
export type EventType = (typeof eventTypes)[number];

/** The type of a webhook that has several events. Nobody subscribes to it: an endpoint takes batches. */
export const eventBatch = 'event.batch';

/** What is sent to one endpoint alone, on request: no events. */
export const probeTypes = ['webhook_endpoint.challenge', 'webhook_endpoint.test'] as const;

export const webhookTypes = [...eventTypes, eventBatch, ...probeTypes] as const;
export type WebhookType = (typeof webhookTypes)[number];

/** Redelivered by a request: as many events as a batch has. What is more waits for another one. */
export const maximumRedelivered = 10_000;
