// The second way: a parent workflow that starts one child workflow per payout.
import { openCustomer } from './customer.mjs';
import { check, countTransitions, timeWay } from './measure.mjs';
import { insertPending } from './payoutRows.mjs';
import { startScript, watchProcesses } from './processes.mjs';

const taskQueue = 'bench-children';

/** Two parents, because the workflow tasks of one run sequentially. */
const parents = 2;

/** Limit: about six events per child in the parent's history, which may have 51,200. */
export const mostPayouts = 15_000;

export async function measureChild(bench, { payouts, atOnce, warmup }) {
  const { stack, database, temporal, directory } = bench;
  const { temporal_address: address, pids } = stack.description;
  const worker = await startScript({
    name: 'child-worker',
    script: './workflowWorker.mjs',
    directory,
    env: {
      TEMPORAL_ADDRESS: address,
      TEMPORAL_NAMESPACE: temporal.options.namespace,
      TASK_QUEUE: taskQueue,
      WORKFLOWS: './childWorkflow.mjs',
    },
  });
  try {
    const customer = await openCustomer(bench, 'child', payouts + warmup);
    const watched = { ...pids, 'child-worker': worker.pid, sink: bench.sinkPid };
    let processes;
    const prepare = async () => {
      processes = watchProcesses(watched);
      return (count) => start(bench, customer, count, atOnce);
    };
    const timed = await timeWay({ bench, database, customer, warmup, payouts, prepare });
    const peaksMb = processes.peaksMb();
    const processorMs = processes.msAPayout(payouts);
    const { workflows, transitions } = await countTransitions(temporal, timed.startedAtMs);
    const { journal } = bench;
    const checked = await check({ bench, database, customer, journal, payouts: payouts + warmup });
    return {
      ...timed,
      atOnce,
      workflows,
      transitionsAPayout: transitions / payouts,
      peaksMb,
      processorMs,
      ...checked,
    };
  } finally {
    await worker.stop();
  }
}

/** Records the payouts and starts the parents, as a batch request would. */
async function start({ database, temporal }, customer, count, atOnce) {
  const ids = await insertPending(database, customer, count);
  const share = Math.ceil(ids.length / parents);
  for (let first = 0; first < ids.length; first += share) {
    await temporal.workflow.start('onePayoutAChild', {
      workflowId: `bench-children/${ids[first]}`,
      taskQueue,
      args: [{ ids: ids.slice(first, first + share), atOnce: Math.ceil(atOnce / parents) }],
    });
  }
  return {};
}
