import { defineSearchAttributeKey, SearchAttributeType } from '@temporalio/common';
import { defineSignal, defineUpdate } from '@temporalio/workflow';
import type { OperatorResult } from '../domain/operator.js';

/**
 * The contract between the workflows and their callers: names, inputs and messages. The only
 * file of this folder that others may import.
 */

/**
 * Separate queues, so that neither slow webhooks nor a slow bank can starve payouts. The activities of
 * batches run in a separate worker process, so that 10,000 items cannot either.
 */
export const taskQueues = {
  payouts: 'payouts',
  rail: 'rail',
  cancellations: 'cancellations',
  webhooks: 'webhooks',
  batch: 'batch',
  batchRail: 'batch-rail',
} as const;

/** Inputs hold only ids, so that personal data never enters a history. */
export type PayoutInput = { readonly payoutId: string };
export type BatchInput = { readonly batchId: string };
export type WebhookDeliveryInput = { readonly endpointId: string };
export type WebhookProbeInput = { readonly probeId: string; readonly accountId: string };

/**
 * An operator's command: the id of a request that the command line has stored. Free text stays in
 * the database, since it cannot be removed from a history.
 */
export const operateUpdate = defineUpdate<OperatorResult, [string]>('operate');

/** The customer's cancellation. It has no argument: operators send a request. */
export const cancelUpdate = defineUpdate<OperatorResult>('cancel');

/** Cancels the items not yet submitted to the rail. The batch's row already records the cancellation. */
export const cancelBatchUpdate = defineUpdate<void>('cancel');

/** Signals that the inbox or the row has changed. It has no payload. */
export const railUpdateSignal = defineSignal('railUpdate');

/** Signals that the endpoint has pending deliveries that are due. */
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
