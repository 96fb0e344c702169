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
import { railNameOf } from '../domain/corridor.js';
import type { OperatorResult } from '../domain/operator.js';
import type { WakeablePayout } from '../domain/payout.js';
import { orderText } from '../domain/standing.js';
import {
  acceptUpdate,
  type BatchInput,
  cancelBatchUpdate,
  deliverSignal,
  railUpdateSignal,
  searchAttributes,
  taskQueues,
} from '../workflows/messages.js';

/** Enough to keep the server busy without queueing a thousand requests in front of it. */
const startsInFlight = 25;

/**
 * Without these two a killed worker costs ten seconds: the server waits for its sticky queue
 * and for its task. Five seconds still cover the local activities of a task.
 */
const workflowTaskTimeoutMs = 5_000;

/** One run at a time of each id: a second caller wakes the first run, or starts one after it. */
const oneRun = {
  workflowTaskTimeout: workflowTaskTimeoutMs,
  workflowIdReusePolicy: WorkflowIdReusePolicy.ALLOW_DUPLICATE,
  workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
} as const;

/** Temporal answers in milliseconds. After this the row stays due, and the sweep wakes it. */
const wakeLimitMs = 5_000;

/** A thousand are woken in some three seconds. Who sent a callback waits for it, as the sweep's other work does. */
const wakeAllLimitMs = 10_000;

/** What operators search by until the payout is accepted and its rail has said its own time. */
const usualSettlementMs = 5 * 24 * 60 * 60 * 1000;

/** Ends a call after its limit, and at most one pause of the client (temporal/client.ts) later. */
function within<T>(client: Client, limitMs: number, call: () => Promise<T>): Promise<T> {
  return client.withDeadline(Date.now() + limitMs, call);
}

type StartOptions = WorkflowOptions & {
  readonly args: unknown[];
  /** What it is woken by; `railUpdate` unless stated. */
  readonly signal?: SignalDefinition;
};

/** A signal that makes a workflow look again, and starts it if it does not run. */
async function wake(
  client: Client,
  workflowType: string,
  options: StartOptions,
  limitMs = wakeLimitMs,
): Promise<void> {
  await within(client, limitMs, () =>
    client.workflow.signalWithStart(workflowType, { signal: railUpdateSignal, ...options }),
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
 * Starts the payout's workflow and waits for its decision, at most until the deadline. The
 * same payout sent again resolves to the same run. Any Temporal error may be thrown; the
 * row alone says what became of the payout.
 */
export async function startAndAwaitDecision(
  client: Client,
  payout: WakeablePayout,
  deadlineMs: number,
): Promise<void> {
  const startWorkflowOperation = new WithStartWorkflowOperation('payout', startOptions(payout));
  await within(client, deadlineMs, () =>
    client.workflow.executeUpdateWithStart(acceptUpdate, {
      updateId: 'accept',
      startWorkflowOperation,
    }),
  );
}

/**
 * Sends an update (cancel, or an operator's) to the payout's workflow, starting it if need be,
 * and waits for its answer at most until the deadline.
 */
export async function askPayout(
  client: Client,
  payout: WakeablePayout,
  update: { readonly name: string; readonly args: readonly string[] },
  deadlineMs: number,
): Promise<OperatorResult> {
  const startWorkflowOperation = new WithStartWorkflowOperation('payout', startOptions(payout));
  return within(client, deadlineMs, () =>
    client.workflow.executeUpdateWithStart<Workflow, OperatorResult, string[]>(update.name, {
      args: [...update.args],
      startWorkflowOperation,
    }),
  );
}

/** A person waits for it, and the database has said the rest. */
const describeLimitMs = 2_000;

/** What a workflow is trying, an activity a line: which attempt, why the last failed, when the next is. */
export async function pendingActivities(
  client: Client,
  workflowId: string,
): Promise<readonly string[]> {
  const handle = client.workflow.getHandle(workflowId);
  const { raw } = await within(client, describeLimitMs, () => handle.describe());
  return (raw.pendingActivities ?? []).map((pending) => {
    const { activityType, attempt, lastFailure, scheduledTime } = pending;
    const last = lastFailure?.message ? `, after: ${lastFailure.message}` : '';
    const nextMs = Number(scheduledTime?.seconds ?? 0) * 1_000;
    const next = nextMs > Date.now() ? `, next at ${new Date(nextMs).toISOString()}` : '';
    return `${activityType?.name}: attempt ${attempt}${last}${next}`;
  });
}

/** Makes sure that the payout's workflow runs and looks again: the one way to wake a payout. */
export function wakePayout(client: Client, payout: WakeablePayout): Promise<void> {
  return wake(client, 'payout', startOptions(payout));
}

export type WakeFailure = { readonly id: string; readonly error: unknown };

/**
 * Wakes many payouts. Returns those that could not be woken: their rows stay due, so the
 * sweep tries them again.
 */
export function wakePayouts(
  client: Client,
  payouts: readonly WakeablePayout[],
): Promise<readonly WakeFailure[]> {
  return wakeAll(client, 'payout', payouts.map(startOptions));
}

/** Wakes the workflows of chunks, as wakePayouts does those of payouts. */
export function wakeChunks(
  client: Client,
  chunks: readonly Chunk[],
): Promise<readonly WakeFailure[]> {
  const starts = chunks.map((chunk) => batchOptions(chunkDriver(chunk), chunk.batchId, chunk));
  return wakeAll(client, 'batchChunk', starts);
}

/** Starts the workflows of batches, or has them look again. */
export function startBatches(client: Client, ids: readonly string[]) {
  const starts = ids.map((batchId) => batchOptions(batchId, batchId, { batchId }));
  return wakeAll(client, 'batch', starts);
}

/** Has the delivery workflows of endpoints look at what is due. */
export function wakeEndpoints(client: Client, ids: readonly string[]) {
  return wakeAll(client, 'webhookDelivery', ids.map(deliveryOptions));
}

async function wakeAll(
  client: Client,
  workflowType: string,
  starts: readonly StartOptions[],
): Promise<readonly WakeFailure[]> {
  const failures: WakeFailure[] = [];
  const endsAtMs = Date.now() + wakeAllLimitMs;
  await pLimit(startsInFlight).map(starts, (options) => {
    const limitMs = Math.min(wakeLimitMs, endsAtMs - Date.now());
    return wake(client, workflowType, options, limitMs).catch((error: unknown) =>
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

/** Starts the workflow of a batch, or has it look again; it is safe to start it again. */
export function startBatch(client: Client, batchId: string): Promise<void> {
  return wake(client, 'batch', batchOptions(batchId, batchId, { batchId }));
}

/**
 * Has the workflow of a batch cancel what the rail has not been given, starting it if need be,
 * and waits until it has, at most until the deadline.
 */
export async function cancelBatchItems(
  client: Client,
  batchId: string,
  deadlineMs: number,
): Promise<void> {
  const options = batchOptions(batchId, batchId, { batchId });
  const startWorkflowOperation = new WithStartWorkflowOperation('batch', options);
  await within(client, deadlineMs, () =>
    client.workflow.executeUpdateWithStart(cancelBatchUpdate, { startWorkflowOperation }),
  );
}

/** Makes sure that the endpoint's delivery workflow runs and looks at what is due. */
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

/** An activity of 20 s (workflows/proxies.ts), and what it takes to begin it. */
const probeLimitMs = 25_000;

/**
 * Has a worker send a challenge or a test, and waits until it is over. Of an endpoint one runs at a
 * time: while another does, it waits for that and sends nothing.
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
 * Asks Temporal, and answers whether it did so within its time. The rows are the request: a repeat
 * or the sweep goes on from them, so a missing answer is not a failure.
 */
export async function askTemporal(
  { log }: { readonly log: Logger },
  object:
    | { readonly payout: string }
    | { readonly batch: string }
    | { readonly webhook_endpoint: string },
  ask: () => Promise<unknown>,
): Promise<boolean> {
  try {
    await ask();
    return true;
  } catch (error) {
    log.warn({ err: error, ...object }, 'a request to Temporal failed');
    return false;
  }
}
