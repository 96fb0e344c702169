import { createHmac, randomBytes } from 'node:crypto';
import {
  type Client,
  WithStartWorkflowOperation,
  WorkflowIdConflictPolicy,
  WorkflowIdReusePolicy,
  type WorkflowOptions,
} from '@temporalio/client';
import {
  type SearchAttributePair,
  type SignalDefinition,
  TypedSearchAttributes,
  type Workflow,
} from '@temporalio/common';
import pLimit from 'p-limit';
import type { Logger } from 'pino';
import { type Chunk, chunkDriver, chunkSummary } from '../domain/batch.js';
import { orderText } from '../domain/commandRules.js';
import { railNameOf } from '../domain/corridor.js';
import type { OperatorResult } from '../domain/operator.js';
import type { WakeablePayout } from '../domain/payout.js';
import {
  type BatchInput,
  cancelBatchUpdate,
  deliverSignal,
  railUpdateSignal,
  searchAttributes,
  taskQueues,
} from '../workflows/messages.js';

/** Maximum concurrent starts: enough to keep the server busy without queueing a thousand requests. */
const startsInFlight = 25;

/**
 * With the default, the server waits ten seconds for the task of a killed worker. Five seconds still
 * cover the local activities of a task. The sticky queue has its own timeout (worker/workers.ts).
 */
const workflowTaskTimeoutMs = 5_000;

/** One run at a time per id: a second caller reaches the current run, or starts a new one after it. */
const oneRun = {
  workflowTaskTimeout: workflowTaskTimeoutMs,
  workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
  workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
} as const;

/** Timeout of a wake. Temporal answers in milliseconds; otherwise the row stays due for the sweep. */
const wakeLimitMs = 5_000;

/** Timeout of waking many. A thousand take three seconds; a callback's sender or a sweep waits for that. */
const wakeAllLimitMs = 10_000;

/** Estimate for SettleBy of a payout that is not accepted yet. It stays until a command changes the deadline. */
const usualSettlementMs = 5 * 24 * 60 * 60 * 1000;

/** Makes a call with a timeout. It ends at most one pause of the client (client.ts) after the timeout. */
function within<T>(client: Client, limitMs: number, call: () => Promise<T>): Promise<T> {
  return client.withDeadline(Date.now() + limitMs, call);
}

type StartOptions = WorkflowOptions & {
  readonly args: unknown[];
  /** The signal that wakes the workflow; `railUpdate` by default. */
  readonly signal?: SignalDefinition;
};

/** Signals a workflow to read its rows again, and starts it if it is not running. */
async function wake(client: Client, type: string, options: StartOptions, limitMs = wakeLimitMs) {
  await within(client, limitMs, () =>
    client.workflow.signalWithStart(type, { signal: railUpdateSignal, ...options }),
  );
}

function startOptions(payout: WakeablePayout) {
  return {
    workflowId: payout.id,
    staticSummary: `${orderText(payout)}, account ${payout.accountId}`,
    args: [{ payoutId: payout.id }],
    taskQueue: taskQueues.payouts,
    ...oneRun,
    typedSearchAttributes: new TypedSearchAttributes(attributesOf(payout)),
  };
}

function attributesOf(payout: WakeablePayout): SearchAttributePair[] {
  const { accountId, batchId, sourceCurrency, destinationCurrency } = payout;
  const pairs: SearchAttributePair[] = [
    { key: searchAttributes.accountId, value: accountId },
    { key: searchAttributes.needsAttention, value: false },
  ];
  const rail = railNameOf(payout.mode);
  if (rail !== undefined) pairs.push({ key: searchAttributes.rail, value: rail });
  if (sourceCurrency !== null && destinationCurrency !== null) {
    const corridor = `${sourceCurrency}-${destinationCurrency}`;
    pairs.push({ key: searchAttributes.corridor, value: corridor });
  }
  if (batchId !== null) pairs.push({ key: searchAttributes.batchId, value: batchId });
  const settleBy = payout.settleBy ?? new Date(Date.now() + usualSettlementMs);
  pairs.push({ key: searchAttributes.settleBy, value: settleBy });
  return pairs;
}

/**
 * Starts the payout's workflow, which decides it first. Has no effect if it is running. Any Temporal error
 * may be thrown, after `limitMs` at most; only the row tells what became of the payout.
 */
export function startPayout(client: Client, payout: WakeablePayout, limitMs: number) {
  return within(client, limitMs, () => client.workflow.start('payout', startOptions(payout)));
}

/**
 * Sends an update (cancel, or an operator's) to the payout's workflow, starting it if needed, and
 * waits for the result for `limitMs` at most.
 */
export async function runUpdate(
  client: Client,
  payout: WakeablePayout,
  update: { readonly name: string; readonly args: readonly string[] },
  limitMs: number,
): Promise<OperatorResult> {
  const startWorkflowOperation = new WithStartWorkflowOperation('payout', startOptions(payout));
  return within(client, limitMs, () =>
    client.workflow.executeUpdateWithStart<Workflow, OperatorResult, string[]>(update.name, {
      args: [...update.args],
      startWorkflowOperation,
    }),
  );
}

/** Makes sure that the payout's workflow is running and reads its row again. */
export function wakePayout(client: Client, payout: WakeablePayout): Promise<void> {
  return wake(client, 'payout', startOptions(payout));
}

export type WakeFailure = { readonly id: string; readonly error: unknown };

/**
 * Wakes many payouts. Returns those that could not be woken: their rows stay due, so the sweep retries them.
 */
export function wakePayouts(client: Client, payouts: readonly WakeablePayout[]) {
  return wakeAll(client, 'payout', payouts.map(startOptions));
}

/** Wakes the workflows of chunks, like `wakePayouts`. */
export function wakeChunks(client: Client, chunks: readonly Chunk[]) {
  const starts = chunks.map((chunk) => batchOptions(chunkDriver(chunk), chunk.batchId, chunk));
  return wakeAll(client, 'batchChunk', starts);
}

/** Starts the workflows of batches, or wakes those that are running. */
export function startBatches(client: Client, ids: readonly string[]) {
  const starts = ids.map((batchId) => batchOptions(batchId, batchId, { batchId }));
  return wakeAll(client, 'batch', starts);
}

/** Wakes the delivery workflows of endpoints, so that they make the attempts that are due. */
export function wakeEndpoints(client: Client, ids: readonly string[]) {
  return wakeAll(client, 'webhookDelivery', ids.map(deliveryOptions));
}

async function wakeAll(
  client: Client,
  type: string,
  starts: readonly StartOptions[],
): Promise<readonly WakeFailure[]> {
  const failures: WakeFailure[] = [];
  const endsAtMs = Date.now() + wakeAllLimitMs;
  await pLimit(startsInFlight).map(starts, (options) => {
    const limitMs = Math.min(wakeLimitMs, endsAtMs - Date.now());
    return wake(client, type, options, limitMs).catch((error: unknown) =>
      failures.push({ id: options.workflowId, error }),
    );
  });
  return failures;
}

function batchOptions(workflowId: string, batchId: string, input: BatchInput | Chunk) {
  return {
    workflowId,
    staticSummary: 'number' in input ? chunkSummary(input) : `Batch ${batchId}`,
    args: [input],
    taskQueue: taskQueues.batch,
    ...oneRun,
    typedSearchAttributes: new TypedSearchAttributes([
      { key: searchAttributes.batchId, value: batchId },
    ]),
  };
}

/** Starts the workflow of a batch, or wakes it if it is running. Safe to repeat. */
export function startBatch(client: Client, batchId: string): Promise<void> {
  return wake(client, 'batch', batchOptions(batchId, batchId, { batchId }));
}

/** With it, whoever reaches Temporal cannot know the ID of an update before a batch is canceled. */
const cancelUpdateSecret = randomBytes(32);

/** One for each batch and process, because a run accepts ten updates at a time and one pass cancels all. */
const cancelUpdateId = (batchId: string) =>
  createHmac('sha256', cancelUpdateSecret).update(batchId).digest('hex');

/**
 * Has the workflow of a batch cancel the items not yet submitted to the rail, starting it if needed,
 * and waits until that is done, for `limitMs` at most.
 */
export async function cancelBatchItems(client: Client, batchId: string, limitMs: number) {
  const options = batchOptions(batchId, batchId, { batchId });
  const startWorkflowOperation = new WithStartWorkflowOperation('batch', options);
  const update = { updateId: cancelUpdateId(batchId), startWorkflowOperation };
  await within(client, limitMs, () =>
    client.workflow.executeUpdateWithStart(cancelBatchUpdate, update),
  );
}

/** Makes sure that the endpoint's delivery workflow is running and makes the attempts that are due. */
export function wakeEndpoint(client: Client, endpointId: string): Promise<void> {
  return wake(client, 'webhookDelivery', deliveryOptions(endpointId));
}

function deliveryOptions(endpointId: string) {
  return {
    workflowId: `webhook/${endpointId}`,
    staticSummary: `Webhooks that endpoint ${endpointId} has not taken`,
    taskQueue: taskQueues.payouts,
    ...oneRun,
    args: [{ endpointId }],
    signal: deliverSignal,
  };
}

/** The activity's 20 s timeout (workflows/proxies.ts) plus the time to schedule it. */
const probeLimitMs = 25_000;

/**
 * Has a worker send a challenge or a test, and waits until that is over. Only one runs per endpoint: if
 * another is in progress, this waits for that one and sends nothing.
 */
export async function runProbe(
  client: Client,
  probe: Record<'id' | 'accountId' | 'endpointId', string>,
) {
  const options = {
    workflowId: `webhook-probe/${probe.endpointId}`,
    staticSummary: `Challenge or test of endpoint ${probe.endpointId}, account ${probe.accountId}`,
    taskQueue: taskQueues.payouts,
    ...oneRun,
    workflowExecutionTimeout: probeLimitMs,
    args: [{ probeId: probe.id, accountId: probe.accountId }],
  };
  const start = () => client.workflow.start('webhookProbe', options);
  const handle = await within(client, wakeLimitMs, start);
  await within(client, probeLimitMs + wakeLimitMs, () => handle.result());
}

/**
 * Makes a request to Temporal, and returns whether it succeeded in time. The rows hold the intent: a
 * retry or the sweep continues from them, so a missing answer is not a failure.
 */
export async function tryTemporal(
  { log }: { readonly log: Logger },
  object:
    | { readonly payout: string }
    | { readonly batch: string }
    | { readonly webhook_endpoint: string },
  request: () => Promise<unknown>,
): Promise<boolean> {
  try {
    await request();
    return true;
  } catch (error) {
    log.warn({ err: error, ...object }, 'a request to Temporal failed');
    return false;
  }
}
