/** What integrators can subscribe to. */
export const eventTypes = [
  'payout.sent',
  'payout.settled',
  'payout.failed',
  'payout.returned',
  'payout.canceled',
  'batch.completed',
] as const;
export type EventType = (typeof eventTypes)[number];

/** What is sent to one endpoint alone, on request: no events. */
export const probeTypes = ['webhook_endpoint.challenge', 'webhook_endpoint.test'] as const;
export type ProbeType = (typeof probeTypes)[number];
