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
