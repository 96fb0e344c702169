// What a batch does to those who send single payouts: the time until POST /v1/payouts answers,
// idle and while batches run, on one stack in one run; see ../README.md.
import { writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { openLoop, pay } from '../payers.mjs';
import { withBench } from './bench.mjs';
import { batchBody, openCustomer } from './customer.mjs';
import { describeMachine, heading, percentile } from './report.mjs';

const { values } = parseArgs({
  options: {
    payouts: { type: 'string', default: '10000' },
    samples: { type: 'string', default: '100' },
    'a-second': { type: 'string', default: '10' },
    data: { type: 'string', default: '.corridor/bench' },
    json: { type: 'string' },
  },
});
const items = Number(values.payouts);
const samples = Number(values.samples);

/** The first requests of a process are slow, and say nothing about a batch. */
const warmup = 20;

/** How soon it is seen that a batch is over, and the next one sent. */
const askIntervalMs = 250;

/** Batches follow each other, so that there is always one while the samples are taken. */
const mostBatches = 50;

/** Sends single payouts at fixed moments. */
function sample(customer, count, label) {
  return openLoop(count, Number(values['a-second']), async (index) => {
    const { status } = await pay(customer, `${label} ${index}`);
    return { isPending: status === 'pending' };
  });
}

/**
 * Sends one batch after another until it is told to stop; answers what became of them, and when
 * each of them was being taken in, for that is the API's own work and not the lane's.
 */
function keepBatchesRunning(customer) {
  const body = batchBody(customer, items);
  let isStopped = false;
  const run = async () => {
    const counts = { batches: 0, settled: 0, intakes: [] };
    while (!isStopped && counts.batches < mostBatches) {
      const intake = { fromMs: performance.now(), toMs: Number.POSITIVE_INFINITY };
      counts.intakes.push(intake);
      let batch = await customer.ask('POST /v1/batches', body);
      intake.toMs = performance.now();
      counts.batches += 1;
      while (!isStopped && batch.status === 'processing') {
        await delay(askIntervalMs);
        batch = await customer.ask(`GET /v1/batches/${batch.id}`);
      }
      counts.settled += batch.counts.settled;
    }
    return counts;
  };
  const ended = run();
  return () => {
    isStopped = true;
    return ended;
  };
}

function figures(answers) {
  const times = answers.map(({ ms }) => ms);
  const pending = answers.filter(({ isPending }) => isPending).length;
  return {
    p50Ms: percentile(times, 0.5),
    p95Ms: percentile(times, 0.95),
    mostMs: Math.max(...times),
    pending,
  };
}

const machine = describeMachine();

const result = await withBench(values.data, async (bench) => {
  const single = await openCustomer(bench, 'single', 2 * samples + warmup);
  // The customer of the batches is another one: what is compared is not their common balance.
  const bulk = await openCustomer(bench, 'bulk', mostBatches * items);
  await sample(single, warmup, 'warm-up');
  const idle = figures(await sample(single, samples, 'idle'));
  const stopBatches = keepBatchesRunning(bulk);
  const answers = await sample(single, samples, 'busy');
  const { intakes, ...ended } = await stopBatches();
  const isBeside = ({ startMs, ms }) =>
    intakes.every(({ fromMs, toMs }) => startMs + ms < fromMs || startMs > toMs);
  const busy = figures(answers);
  const carried = figures(answers.filter(isBeside));
  const ratioOf = ({ p95Ms }) => p95Ms / idle.p95Ms;
  return { idle, busy, carried, ...ended, p95Ratio: ratioOf(busy), p95Carried: ratioOf(carried) };
});

console.log(heading(machine));
for (const name of ['idle', 'busy', 'carried']) {
  const { p50Ms, p95Ms, mostMs, pending } = result[name];
  console.log(
    `${name}: p50 ${p50Ms.toFixed(1)} ms, p95 ${p95Ms.toFixed(1)} ms, slowest ${mostMs.toFixed(1)} ms; ` +
      `${pending} of ${samples} were answered as pending`,
  );
}
console.log(
  `p95 while batches of ${items} ran (${result.batches} sent, ${result.settled} items settled ` +
    `meanwhile): ${result.p95Ratio.toFixed(2)} times that of an idle system; ` +
    `without the moments in which a batch was being taken in: ${result.p95Carried.toFixed(2)} times`,
);
if (values.json !== undefined) {
  await writeFile(values.json, `${JSON.stringify({ ...machine, items, ...result }, null, 2)}\n`);
}
