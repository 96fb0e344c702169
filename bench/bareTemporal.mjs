// Temporal alone, as the lower bound of what a payout costs: a worker whose workflows do nothing, and the calls to it.
import { WithStartWorkflowOperation } from '@temporalio/client';
import { startScript } from './batch/processes.mjs';

const taskQueue = 'bench-bare';

/** Starts the worker of `bareWorkflows.mjs`. */
export function startBareWorker({ stack, temporal, directory }) {
  return startScript({
    name: 'bare-worker',
    script: './workflowWorker.mjs',
    directory,
    env: {
      TEMPORAL_ADDRESS: stack.description.temporal_address,
      TEMPORAL_NAMESPACE: temporal.options.namespace,
      TASK_QUEUE: taskQueue,
      WORKFLOWS: '../bareWorkflows.mjs',
    },
  });
}

/** Returns functions that start a workflow each, from the same kind of client as the API's. */
export function bareStarts({ workflow }) {
  let number = 0;
  const options = () => {
    number += 1;
    return { workflowId: `bare-${number}`, taskQueue, workflowTaskTimeout: 5_000 };
  };
  return {
    update: () =>
      workflow.executeUpdateWithStart('accept', {
        startWorkflowOperation: new WithStartWorkflowOperation('answering', {
          ...options(),
          workflowIdConflictPolicy: 'USE_EXISTING',
        }),
      }),
    run: () => workflow.execute('empty', options()),
    shaped: () => workflow.start('payoutShaped', options()),
  };
}
