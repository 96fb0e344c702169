// Measures single payouts in a closed loop, each from its request to its webhook; see README.md.
import { parseArgs } from 'node:util';
import { withBench } from './batch/bench.mjs';
import { openCustomer } from './batch/customer.mjs';
import { countTransitions, unbalanced } from './batch/measure.mjs';
import { watchProcesses } from './batch/processes.mjs';
import { describeMachine, heading, percentile, totalMs } from './batch/report.mjs';
import { closedLoop, pay, startReceiver } from './payers.mjs';

const { values } = parseArgs({
  options: {
    'in-flight': { type: 'string', default: '16' },
    payouts: { type: 'string', default: '400' },
    warmup: { type: 'string', default: '100' },
    data: { type: 'string', default: '.corridor/bench' },
  },
});
const inFlight = Number(values['in-flight']);
const payouts = Number(values.payouts);
const warmup = Number(values.warmup);

/** Sends payouts, `inFlight` at a time. Returns the milliseconds to each response and each webhook. */
async function payAll(customer, receiver, count) {
  const answers = [];
  const ids = [];
  const webhooks = await closedLoop(count, inFlight, async (number) => {
    const startMs = performance.now();
    const { id } = await pay(customer, `Invoice ${number}`);
    answers.push(performance.now() - startMs);
    await receiver.untilAnnounced(id);
    ids.push(id);
  });
  return { answers, webhooks, ids };
}

const machine = describeMachine();

const lines = await withBench(values.data, async (bench) => {
  const receiver = await startReceiver();
  try {
    const customer = await openCustomer(
      { ...bench, sinkUrl: receiver.url },
      'singles',
      payouts + warmup,
    );
    await payAll(customer, receiver, warmup);
    const processes = watchProcesses({ ...bench.stack.description.pids });
    const startedAtMs = Date.now();
    const { answers, webhooks, ids } = await payAll(customer, receiver, payouts);
    const seconds = (Date.now() - startedAtMs) / 1_000;
    const spent = processes.msAPayout(payouts);
    const { transitions } = await countTransitions(bench.temporal, startedAtMs);
    const { historyLength } = await bench.temporal.workflow.getHandle(ids.at(-1)).describe();
    const problems = await unbalanced(bench.database);
    if (problems.length > 0) throw new Error(problems.join('\n'));
    const total = totalMs({ processorMs: spent });
    const parts = Object.entries(spent).map(([name, ms]) => `${name} ${ms.toFixed(1)}`);
    return [
      `${payouts} payouts, ${inFlight} in flight: ${(payouts / seconds).toFixed(1)} a second`,
      `answered: p50 ${percentile(answers, 0.5).toFixed(0)} ms, p95 ${percentile(answers, 0.95).toFixed(0)} ms`,
      `announced: p50 ${percentile(webhooks, 0.5).toFixed(0)} ms, p95 ${percentile(webhooks, 0.95).toFixed(0)} ms`,
      `CPU ms a payout: ${total.toFixed(1)} (${parts.join(', ')})`,
      `Temporal: ${historyLength} events, ${(transitions / payouts).toFixed(1)} transitions a payout`,
    ];
  } finally {
    receiver.close();
  }
});
console.log([heading(machine), ...lines].join('\n'));
