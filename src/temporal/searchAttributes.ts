import { setTimeout } from 'node:timers/promises';
import {
  type Client,
  type Connection,
  isGrpcServiceError,
  WorkflowIdConflictPolicy,
} from '@temporalio/client';
import { TypedSearchAttributes } from '@temporalio/common';
import { searchAttributes, taskQueues } from '../workflows/messages.js';

/** The numbers of the indexed value types (temporal.api.enums.v1.IndexedValueType). */
const indexedTypes = { KEYWORD: 2, BOOL: 5, DATETIME: 6 } as const;

/** gRPC's INVALID_ARGUMENT and ALREADY_EXISTS. */
const invalidArgument = 3;
const alreadyExists = 6;

/** A new attribute is usable within some seconds; past this the server has another problem. */
const readyWithinMs = 30_000;
const probePauseMs = 200;

/**
 * Adds the search attributes through the operator service, for flags of the dev server are
 * ignored on an existing database file. A new one is usable only some time later.
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
 * Adds the search attributes and returns when a start accepts them: a start that names an
 * unknown attribute is refused. The probe is a sweep, which does no harm.
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
