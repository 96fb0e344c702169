import { defineSearchAttributeKey, SearchAttributeType } from '@temporalio/common';
import { defineSignal, defineUpdate } from '@temporalio/workflow';
import type { Chunk } from '../domain/batch.js';
import type { OperatorResult } from '../domain/operator.js';
import type { PayoutStatus } from '../domain/payout.js';

/**
 * The contract between the workflows and everybody who talks to them: names, inputs and
 * messages. The only file of this folder that others may import.
 */

/**
 * Apart from each other, so that slow webhooks cannot starve payouts, nor a slow bank either;
 * those of batches are a worker process's of their own, so that 10,000 items cannot.
 */
export const taskQueues = {
  payouts: 'payouts',
  rail: 'rail',
  webhooks: 'webhooks',
  batch: 'batch',
  batchRail: 'batch-rail',
  batchWebhooks: 'batch-webhooks',
} as const;

/** Ids alone: personal data never enters a history. */
export type PayoutInput = { readonly payoutId: string };
/** `untold`: everything is decided, and of these chunks something canceled has still to be told. */
export type BatchInput = { readonly batchId: string; readonly untold?: readonly number[] };
/** `hasSubscribers`: events of the chunk are owed to somebody already. */
export type BatchChunkInput = Chunk & { readonly hasSubscribers: boolean };
export type WebhookDeliveryInput = { readonly endpointId: string };

/** Waits for the decision; the main function decides, whoever started it. */
export const acceptUpdate = defineUpdate<PayoutStatus>('accept');

export type { OperatorResult };

/**
 * An operator's command: the id of a request that the command line has kept. What people write
 * stays in the database, for nobody can take it out of a history again.
 */
export const operateUpdate = defineUpdate<OperatorResult, [string]>('operate');

/** The customer's wish. It has no argument: an operator who cancels for them sends a request. */
export const cancelUpdate = defineUpdate<OperatorResult>('cancel');

/** Cancels what the rail has not been given; the batch's row says so already. */
export const cancelBatchUpdate = defineUpdate<void>('cancel');

/** "Look again": the inbox or the row has something new. It carries no data. */
export const railUpdateSignal = defineSignal('railUpdate');

/** The endpoint is owed something that the first attempt left over. */
export const deliverSignal = defineSignal('deliver');

export const searchAttributes = {
  accountId: defineSearchAttributeKey('AccountId', SearchAttributeType.KEYWORD),
  rail: defineSearchAttributeKey('Rail', SearchAttributeType.KEYWORD),
  corridor: defineSearchAttributeKey('Corridor', SearchAttributeType.KEYWORD),
  batchId: defineSearchAttributeKey('BatchId', SearchAttributeType.KEYWORD),
  needsAttention: defineSearchAttributeKey('NeedsAttention', SearchAttributeType.BOOL),
  attentionReason: defineSearchAttributeKey('AttentionReason', SearchAttributeType.KEYWORD),
  settleBy: defineSearchAttributeKey('SettleBy', SearchAttributeType.DATETIME),
} as const;
