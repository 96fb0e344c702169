/** What integrators can subscribe to. */
export const eventTypes = [
  'payout.sent',
  'payout.settled',
  'payout.failed',
  'payout.returned',
  'payout.canceled',
  'batch.completed',
] as const;
/** Redelivered by a request: as many events as a batch has. What is more waits for another one. */
export const maximumRedelivered = 10_000;

export type EventType = (typeof eventTypes)[number];
