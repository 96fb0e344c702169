// Measures how batches affect single payouts: the response time of POST /v1/payouts while idle and while
// batches run, beside that of Temporal alone, on one stack in one run; see ../README.md.
import { writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { bareStarts, startBareWorker } from '../bareTemporal.mjs';
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

/** Warm-up requests, because the first requests to a process are slow whatever the load. */
const warmup = 20;

/** Number of samples of one kind in a row, so that both kinds meet every phase of a batch. */
const inARow = 20;

/** Poll interval for the end of a batch, after which the next one is sent. */
const pollIntervalMs = 250;

/** Maximum number of batches, sent one after another so that one always runs while samples are taken. */
const mostBatches = 50;

/** Sends single payouts at a constant rate. */
function sample(customer, count, label) {
  return openLoop(count, Number(values['a-second']), async (index) => {
    const { status } = await pay(customer, `${label} ${index}`);
    return { isPending: status === 'pending' };
  });
}

/**
 * Sends one batch after another until stopped. Returns their outcomes and when each one's request was
 * being processed, because that is the API's work and not the batch worker's.
 */
function keepBatchesRunning(customer) {
  const body = batchBody(customer, items);
  let isStopped = false;
  const run = async () => {
    const counts = { batches: 0, settled: 0, intakes: [] };
    while (!isStopped && counts.batches < mostBatches) {
      const intake = { fromMs: performance.now(), toMs: Number.POSITIVE_INFINITY };
      counts.intakes.push(intake);
      let batch = await customer.request('POST /v1/batches', body);
      intake.toMs = performance.now();
      counts.batches += 1;
      while (!isStopped && batch.status === 'processing') {
        await delay(pollIntervalMs);
        batch = await customer.request(`GET /v1/batches/${batch.id}`);
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

/** Takes the samples of both kinds in turns and returns them separately. */
async function inTurns(takeOurs, takeBare) {
  const [ours, bare] = [[], []];
  for (let taken = 0; taken < samples; taken += inARow) {
    const count = Math.min(inARow, samples - taken);
    ours.push(...(await takeOurs(count, taken)));
    bare.push(...(await takeBare(count)));
  }
  return { ours, bare };
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
  // The batches have a different customer, so that contention for one balance is not measured.
  const bulk = await openCustomer(bench, 'bulk', mostBatches * items);
  const bareWorker = await startBareWorker(bench);
  const { update } = bareStarts(bench.temporal);
  const sampleBare = (count) => openLoop(count, Number(values['a-second']), update);
  await sample(single, warmup, 'warm-up');
  await sampleBare(warmup);
  const sampleBoth = (label) =>
    inTurns((count, taken) => sample(single, count, `${label} ${taken}`), sampleBare);
  const whileIdle = await sampleBoth('idle');
  const stopBatches = keepBatchesRunning(bulk);
  const whileBusy = await sampleBoth('busy');
  const { intakes, ...ended } = await stopBatches();
  await bareWorker.stop();
  const isBeside = ({ startMs, ms }) =>
    intakes.every(({ fromMs, toMs }) => startMs + ms < fromMs || startMs > toMs);
  const [idle, busy] = [figures(whileIdle.ours), figures(whileBusy.ours)];
  const [bareIdle, bareBusy] = [figures(whileIdle.bare), figures(whileBusy.bare)];
  const afterIntake = figures(whileBusy.ours.filter(isBeside));
  const ratioOf = ({ p95Ms }) => p95Ms / idle.p95Ms;
  return {
    ...{ idle, busy, afterIntake, bareIdle, bareBusy, ...ended },
    bareRatio: bareBusy.p95Ms / bareIdle.p95Ms,
    ...{ p95Ratio: ratioOf(busy), p95AfterIntake: ratioOf(afterIntake) },
  };
});

console.log(heading(machine));
const names = { idle: 'idle', busy: 'busy', afterIntake: 'busy, after the intake' };
for (const [key, name] of Object.entries(names)) {
  const { p50Ms, p95Ms, mostMs, pending } = result[key];
  console.log(
    `${name}: p50 ${p50Ms.toFixed(1)} ms, p95 ${p95Ms.toFixed(1)} ms, slowest ${mostMs.toFixed(1)} ms; ` +
      `${pending} of ${samples} were answered as pending`,
  );
}
console.log(
  `p95 while batches of ${items} ran (${result.batches} sent, ${result.settled} items settled ` +
    `meanwhile): ${result.p95Ratio.toFixed(2)} times that of an idle system; ` +
    `without the samples during the intake of a batch: ${result.p95AfterIntake.toFixed(2)} times`,
);
console.log(
  `Temporal alone: p95 ${result.bareIdle.p95Ms.toFixed(1)} and ${result.bareBusy.p95Ms.toFixed(1)} ms, ` +
    `${result.bareRatio.toFixed(2)} times`,
);
if (values.json !== undefined) {
  await writeFile(values.json, `${JSON.stringify({ ...machine, items, ...result }, null, 2)}\n`);
}
