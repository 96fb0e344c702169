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
/** The type of a webhook that has several events. Nobody subscribes to it: an endpoint takes batches. */
export const eventBatch = 'event.batch';
export const webhookTypes = [...eventTypes, eventBatch] as const;
export type WebhookType = (typeof webhookTypes)[number];

/** Redelivered by a request: as many events as a batch has. What is more waits for another one. */
export const maximumRedelivered = 10_000;

export type EventType = (typeof eventTypes)[number];
