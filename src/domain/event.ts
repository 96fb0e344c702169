/** The event types that integrators can subscribe to. */
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

/** Type of a webhook with several events. Endpoints do not subscribe to it but turn on `batching`. */
export const eventBatch = 'event.batch';

/** Webhooks sent to a single endpoint on request. They are not events. */
export const probeTypes = ['webhook_endpoint.challenge', 'webhook_endpoint.test'] as const;

export const webhookTypes = [...eventTypes, eventBatch, ...probeTypes] as const;
export type WebhookType = (typeof webhookTypes)[number];

/** Maximum number of events redelivered per request, as many as a batch has. The rest needs more requests. */
export const maximumRedelivered = 10_000;
