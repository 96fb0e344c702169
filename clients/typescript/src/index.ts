export type { Batches } from './batches.js';
export type { TextSource } from './bodies.js';
export { Corridor, type CorridorOptions } from './client.js';
export { CorridorConnectionError, CorridorProblem, CorridorWaitTimeoutError } from './errors.js';
export type { Events, ListenOptions } from './events.js';
export type { List } from './lists.js';
export type { Payouts } from './payouts.js';
export type { RequestOptions, WriteOptions } from './transport.js';
export type {
  Account,
  ApiVersion,
  Balance,
  BalanceTransaction,
  Batch,
  BatchItem,
  BatchMode,
  BatchParams,
  BatchPreview,
  Beneficiary,
  BeneficiaryRequirements,
  Calculation,
  CanceledBatch,
  CorridorEvent,
  CorridorOffer,
  Delivery,
  DeliveryWithAttempts,
  ExpandedPayout,
  Limit,
  Page,
  PastRate,
  Payout,
  PayoutParams,
  Problem,
  ProblemCode,
  ProblemError,
  Quote,
  Rate,
  Redelivery,
  Schemas,
  WebhookEndpoint,
  WebhookEndpointWithSecret,
  WebhookEvent,
  WebhookTest,
} from './types.js';
export type { WaitOptions } from './waiting.js';
export {
  challengeOf,
  verifyWebhook,
  verifyWebhookEvents,
  type WebhookHeaders,
  WebhookVerificationError,
} from './webhook.js';
