import { setTimeout } from 'node:timers/promises';
import {
  type Client,
  type Connection,
  isGrpcServiceError,
  WorkflowIdConflictPolicy,
} from '@temporalio/client';
import { TypedSearchAttributes } from '@temporalio/common';
import { searchAttributes, taskQueues } from '../workflows/messages.js';

/** The codes of the indexed value types (temporal.api.enums.v1.IndexedValueType). */
const indexedTypes = { KEYWORD: 2, BOOL: 5, DATETIME: 6 } as const;

/** gRPC's INVALID_ARGUMENT and ALREADY_EXISTS. */
const invalidArgument = 3;
const alreadyExists = 6;

/** Timeout for a new attribute to become usable. It takes some seconds; beyond this, something is wrong. */
const readyWithinMs = 30_000;
const probePauseMs = 200;

/**
 * Adds the search attributes through the operator service, because the dev server ignores its flags
 * if the database file exists. A new attribute becomes usable only some time later.
 */
export async function addSearchAttributes(
  connection: Pick<Connection, 'operatorService'>,
  { options: { namespace } }: Client,
): Promise<void> {
  for (const key of Object.values(searchAttributes)) {
    const added = { namespace, searchAttributes: { [key.name]: indexedTypes[key.type] } };
    try {
      await connection.operatorService.addSearchAttributes(added);
    } catch (error) {
      if (!isGrpcServiceError(error) || error.code !== alreadyExists) throw error;
    }
  }
}

/**
 * Adds the search attributes and returns once the server accepts them: it refuses to start a
 * workflow with an unknown attribute. The workflow started as a probe is a sweep, which is safe.
 */
export async function ensureSearchAttributes(
  connection: Pick<Connection, 'operatorService'>,
  client: Client,
): Promise<void> {
  await addSearchAttributes(connection, client);
  const deadlineMs = Date.now() + readyWithinMs;
  while (!(await startsAreAccepted(client))) {
    if (Date.now() > deadlineMs) {
      throw new Error(`Temporal did not accept the search attributes in ${readyWithinMs} ms.`);
    }
    await setTimeout(probePauseMs);
  }
}

async function startsAreAccepted(client: Client): Promise<boolean> {
  try {
    await client.workflow.start('sweep', {
      workflowId: 'sweep/at-start-up',
      workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
      taskQueue: taskQueues.payouts,
      typedSearchAttributes: new TypedSearchAttributes([
        { key: searchAttributes.accountId, value: 'none' },
        { key: searchAttributes.rail, value: 'none' },
        { key: searchAttributes.corridor, value: 'none' },
        { key: searchAttributes.batchId, value: 'none' },
        { key: searchAttributes.needsAttention, value: false },
        { key: searchAttributes.attentionReason, value: 'none' },
        { key: searchAttributes.settleBy, value: new Date(0) },
      ]),
    });
    return true;
  } catch (error) {
    const cause = error instanceof Error ? error.cause : undefined;
    if (isGrpcServiceError(cause) && cause.code === invalidArgument) return false;
    throw error;
  }
}
