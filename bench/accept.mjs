// Measures Corridor's overhead over Temporal: accepting a payout against a bare Update-with-Start, a payout
// up to its webhook against an empty workflow, and accepting under increasing load; see README.md.
import { writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { bareStarts, startBareWorker } from './bareTemporal.mjs';
import { withBench } from './batch/bench.mjs';
import { openCustomer } from './batch/customer.mjs';
import { unbalanced } from './batch/measure.mjs';
import { watchProcesses } from './batch/processes.mjs';
import { describeMachine, heading, percentile, totalMs } from './batch/report.mjs';
import { closedLoop, openLoop, pay, startReceiver } from './payers.mjs';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    'a-round': { type: 'string', default: '40' },
    rates: { type: 'string', default: '2,5,10,15,20,25' },
    seconds: { type: 'string', default: '12' },
    data: { type: 'string', default: '.corridor/bench' },
    json: { type: 'string' },
  },
});
const rounds = Number(values.rounds);
const aRound = Number(values['a-round']);
const rates = values.rates.split(',').map(Number);
const seconds = Number(values.seconds);

/** Calls to Temporal alone. */
function bareCalls(temporal) {
  const bare = bareStarts(temporal);
  return {
    ...bare,
    /** A bare payout. Resolves when the bank has called back and all is done. */
    shaped: async () => {
      const handle = await bare.shaped();
      await delay(callbackAfterMs);
      await handle.signal('railUpdate');
      await handle.result();
    },
  };
}

/** The sandbox bank's delay until it settles. */
const callbackAfterMs = 200;

const ms = (figure) => figure.toFixed(1);

/** Measures each way in turn, round by round. Each round ends before the next one starts. */
async function measureAccepting(customer, bare) {
  const results = [];
  for (const atOnce of [1, 8, 16]) {
    const [ours, floor] = [[], []];
    for (let round = 0; round < rounds; round += 1) {
      const accept = (number) => pay(customer, `Accept ${atOnce} ${number}`);
      ours.push(...(await closedLoop(aRound, atOnce, accept)));
      await settled(customer);
      floor.push(...(await closedLoop(aRound, atOnce, bare.update)));
    }
    const at = (share) => [ours, floor].map((all) => percentile(all, share));
    const [[ours50, floor50], [ours95, floor95]] = [at(0.5), at(0.95)];
    const ratio = ours50 / floor50;
    results.push({ atOnce, ours50, floor50, ours95, floor95, ratio });
  }
  return results;
}

/** Waits until none of the customer's payouts is open, and a moment longer for the remaining work. */
async function settled(customer) {
  for (const status of ['pending', 'processing', 'sent']) {
    for (;;) {
      const { data } = await customer.request(`GET /v1/payouts?status=${status}&limit=1`);
      if (data.length === 0) break;
      await delay(250);
    }
  }
  await delay(1_000);
}

async function measureWhole(customer, receiver, bare, pids) {
  const atOnce = 32;
  const perSecond = { ours: [], shaped: [], empty: [] };
  const spentMs = { ours: 0, shaped: 0, empty: 0 };
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, work] of [
      [
        'ours',
        async (number) => receiver.untilAnnounced((await pay(customer, `Whole ${number}`)).id),
      ],
      ['shaped', bare.shaped],
      ['empty', bare.run],
    ]) {
      const processes = watchProcesses(pids);
      const startMs = performance.now();
      await closedLoop(aRound, atOnce, work);
      perSecond[name].push((aRound * 1_000) / (performance.now() - startMs));
      spentMs[name] += totalMs({ processorMs: processes.msAPayout(aRound * rounds) });
    }
  }
  const [ours, shaped, empty] = ['ours', 'shaped', 'empty'].map((name) =>
    percentile(perSecond[name], 0.5),
  );
  return { atOnce, ours, shaped, empty, ratio: ours / empty, processorMs: spentMs };
}

/** Measures each rate with Temporal alone first, then with payouts and their background work. */
async function measureLoad(customer, bare) {
  const curve = [];
  for (const aSecond of rates) {
    const count = aSecond * seconds;
    const floor = await openLoop(count, aSecond, bare.update);
    const sent = await openLoop(count, aSecond, async (index) => {
      const { status } = await pay(customer, `Load ${aSecond} ${index}`);
      return { isPending: status === 'pending' };
    });
    const figures = (all) =>
      Object.fromEntries(
        [50, 95, 99].map((p) => [
          `p${p}`,
          percentile(
            all.map((one) => one.ms),
            p / 100,
          ),
        ]),
      );
    const pending = sent.filter(({ isPending }) => isPending).length;
    curve.push({ aSecond, ours: figures(sent), floor: figures(floor), pending });
    await settled(customer);
  }
  return curve;
}

const machine = describeMachine();

const result = await withBench(values.data, async (bench) => {
  const { stack, temporal, database } = bench;
  const receiver = await startReceiver();
  const worker = await startBareWorker(bench);
  try {
    const customer = await openCustomer({ ...bench, sinkUrl: receiver.url }, 'accept', 50_000);
    const bare = bareCalls(temporal);
    await closedLoop(50, 8, (number) => pay(customer, `Warm-up ${number}`));
    await closedLoop(50, 8, bare.update);
    await settled(customer);
    const accepting = await measureAccepting(customer, bare);
    const whole = await measureWhole(customer, receiver, bare, {
      ...stack.description.pids,
      bare: worker.pid,
    });
    const load = await measureLoad(customer, bare);
    const problems = await unbalanced(database);
    if (problems.length > 0) throw new Error(problems.join('\n'));
    return { accepting, whole, load };
  } finally {
    await worker.stop();
    receiver.close();
  }
});

console.log(heading(machine));
for (const one of result.accepting) {
  const { atOnce, ours50, floor50, ours95, floor95, ratio } = one;
  console.log(
    `accepted, ${atOnce} at once: p50 ${ms(ours50)} ms, p95 ${ms(ours95)} ms; ` +
      `bare Update-with-Start ${ms(floor50)} and ${ms(floor95)} ms: ${ratio.toFixed(2)} times`,
  );
}
const { whole } = result;
console.log(
  `to the last webhook, ${whole.atOnce} at once: ${ms(whole.ours)} a second, ` +
    `${whole.ratio.toFixed(2)} of ${ms(whole.empty)} empty workflows, ` +
    `${(whole.ours / whole.shaped).toFixed(2)} of ${ms(whole.shaped)} bare payouts`,
);
const { processorMs: spent } = whole;
console.log(
  `CPU ms each: ours ${ms(spent.ours)}, a bare payout ${ms(spent.shaped)}, an empty workflow ${ms(spent.empty)}`,
);
for (const { aSecond, ours, floor, pending } of result.load) {
  const figures = ({ p50, p95, p99 }) => `p50 ${ms(p50)}, p95 ${ms(p95)}, p99 ${ms(p99)} ms`;
  console.log(
    `accepted at ${aSecond} a second: ${figures(ours)}, ${pending} pending; ` +
      `bare Update-with-Start: ${figures(floor)}`,
  );
}
if (values.json !== undefined) {
  await writeFile(values.json, `${JSON.stringify({ ...machine, ...result }, null, 2)}\n`);
}
