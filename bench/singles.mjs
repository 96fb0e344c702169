// Single payouts in a closed loop, each from its request to its webhook; see README.md.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { withBench } from './batch/bench.mjs';
import { amountMinor, openCustomer } from './batch/customer.mjs';
import { countTransitions, unbalanced } from './batch/measure.mjs';
import { watchProcesses } from './batch/processes.mjs';
import { describeMachine, heading, percentile } from './batch/report.mjs';

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

/** A payout that takes longer than this will never be announced. */
const announcedLimitMs = 60_000;

/** A receiver of webhooks, and what waits for the one of a payout. */
async function startReceiver() {
  const announced = new Set();
  const waiting = new Map();
  const server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const { data } = JSON.parse(Buffer.concat(parts).toString('utf8'));
      announced.add(data.id);
      waiting.get(data.id)?.();
      response.writeHead(200).end();
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    close: () => server.close(),
    untilAnnounced: (id) =>
      new Promise((resolve, reject) => {
        const late = () => reject(new Error(`${id} is not announced.`));
        const timer = setTimeout(late, announcedLimitMs);
        const come = () => {
          clearTimeout(timer);
          resolve();
        };
        if (announced.has(id)) come();
        else waiting.set(id, come);
      }),
  };
}

/** Sends so many payouts, `inFlight` at a time: the milliseconds to each answer and each webhook. */
async function pay(customer, receiver, count) {
  const answers = [];
  const webhooks = [];
  const ids = [];
  let begun = 0;
  const loop = async () => {
    while (begun < count) {
      begun += 1;
      const startMs = performance.now();
      const payout = await customer.ask('POST /v1/payouts', {
        beneficiary: customer.beneficiaryId,
        source_currency: 'USD',
        amount: amountMinor,
        reference: `Invoice ${begun}`,
      });
      answers.push(performance.now() - startMs);
      await receiver.untilAnnounced(payout.id);
      webhooks.push(performance.now() - startMs);
      ids.push(payout.id);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, loop));
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
    await pay(customer, receiver, warmup);
    const processes = watchProcesses({ ...bench.stack.description.pids });
    const startedAtMs = Date.now();
    const { answers, webhooks, ids } = await pay(customer, receiver, payouts);
    const seconds = (Date.now() - startedAtMs) / 1_000;
    const spent = processes.msAPayout(payouts);
    const { transitions } = await countTransitions(bench.temporal, startedAtMs);
    const { historyLength } = await bench.temporal.workflow.getHandle(ids.at(-1)).describe();
    const problems = await unbalanced(bench.database);
    if (problems.length > 0) throw new Error(problems.join('\n'));
    const total = Object.values(spent).reduce((sum, ms) => sum + ms, 0);
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
