// The product's way: a batch is one request, processed by the product's own processes.
import { batchBody, openCustomer } from './customer.mjs';
import { check, countTransitions, timeWay } from './measure.mjs';
import { watchProcesses } from './processes.mjs';

export async function measureOurs(bench, { payouts: aBatch, batches, warmup }) {
  const { stack, database, temporal } = bench;
  const { pids } = stack.description;
  const payouts = aBatch * batches;
  const customer = await openCustomer(bench, 'ours', payouts + warmup);
  let processes;
  const prepare = async (count) => {
    const isWarmup = count !== payouts;
    const each = isWarmup ? count : aBatch;
    const body = batchBody(customer, each);
    processes = watchProcesses({ ...pids, sink: bench.sinkPid });
    return async () => {
      const sent = Array.from({ length: isWarmup ? 1 : batches }, async () => {
        const startedMs = performance.now();
        const batch = await customer.request('POST /v1/batches', body);
        return { id: batch.id, answeredMs: performance.now() - startedMs };
      });
      const answers = await Promise.all(sent);
      return {
        batchIds: answers.map(({ id }) => id),
        answeredMs: answers.map(({ answeredMs }) => Math.round(answeredMs)),
        apiGrowthMb: processes.growthMb('api'),
      };
    };
  };
  const { batchIds, ...timed } = await timeWay({
    ...{ bench, database, customer, warmup, payouts, prepare },
  });
  const peaksMb = processes.peaksMb();
  const processorMs = processes.msAPayout(payouts);
  const { workflows, transitions } = await countTransitions(temporal, timed.startedAtMs);
  const journal = bench.journal;
  const checked = await check({ bench, database, customer, journal, payouts: payouts + warmup });
  for (const id of batchIds) {
    const { status, counts } = await customer.request(`GET /v1/batches/${id}`);
    if (status !== 'completed' || counts.settled !== aBatch) {
      checked.problems.push(`${id} is ${status} with ${counts.settled} of ${aBatch} settled`);
    }
  }
  return {
    ...timed,
    workflows,
    transitionsAPayout: transitions / payouts,
    peaksMb,
    processorMs,
    ...checked,
  };
}
