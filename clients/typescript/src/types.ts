import type { components } from './generated/schema.js';

/** The API's objects and parameters, by their names in the OpenAPI document. */
export type Schemas = components['schemas'];

/** The API version that the types describe and that the client requests. */
export type ApiVersion = Schemas['api_version'];
export const describedVersion: ApiVersion = '2026-11-15';

export type Account = Schemas['account'];
export type Balance = Schemas['balance'];
export type Limit = Schemas['limit'];
export type BalanceTransaction = Schemas['balance_transaction'];
export type Batch = Schemas['batch'];
export type BatchPreview = Schemas['batch_preview'];
export type Beneficiary = Schemas['beneficiary'];
export type BeneficiaryRequirements = Schemas['beneficiary_requirements'];
export type CanceledBatch = Schemas['canceled_batch'];
export type CorridorOffer = Schemas['corridor'];
export type Redelivery = Schemas['redelivery'];
export type Delivery = Schemas['delivery'];
export type DeliveryWithAttempts = Schemas['delivery_with_attempts'];
export type ExpandedPayout = Schemas['expanded_payout'];
export type Payout = Schemas['payout'];
export type Problem = Schemas['problem'];
export type ProblemCode = Schemas['problem_code'];
export type ProblemError = Schemas['problem_error'];
export type Calculation = Schemas['calculation'];
export type PastRate = Schemas['past_rate'];
export type Quote = Schemas['quote'];
export type Rate = Schemas['rate'];
export type WebhookEndpoint = Schemas['webhook_endpoint'];
export type WebhookTest = Schemas['webhook_test'];
export type WebhookEndpointWithSecret = Schemas['webhook_endpoint_with_secret'];

export type BatchItem = Schemas['batch_item_params'];
export type BatchParams = Omit<Schemas['createBatch_params'], 'validate_only'>;
export type BatchMode = NonNullable<BatchParams['mode']>;
export type PayoutParams = Schemas['createPayout_params'];

type EventType = Schemas['event']['type'];

/** An event's `type` determines the type of its `data`: `if (event.type === 'payout.settled') …`. */
type About<Whole, PayoutData, BatchData> =
  | Of<Whole, `payout.${string}`, PayoutData>
  | Of<Whole, `batch.${string}`, BatchData>
  | Of<Whole, `webhook_endpoint.${string}`, WebhookEndpoint>;

type Of<Whole, Type extends string, Data> = Omit<Whole, 'type' | 'data'> & {
  readonly type: Extract<EventType, Type>;
  readonly data: Data;
};

export type CorridorEvent = About<Schemas['event'], Payout, Batch>;

/** An endpoint keeps the API version it was created with, and in the first version rates were numbers. */
type AnyVersion<Subject> = Omit<Subject, 'rate' | 'fee'> & {
  readonly rate: string | number | null;
  readonly fee: string | number | null;
};
export type WebhookEvent = About<
  Omit<Schemas['webhook_message'], 'api_version'> & { readonly api_version: string },
  AnyVersion<Payout>,
  Batch
>;

/** A page of a list, as returned by the API. */
export type Page<Item> = {
  readonly object: 'list';
  readonly data: readonly Item[];
  readonly has_more: boolean;
};
