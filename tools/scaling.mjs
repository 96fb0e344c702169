// Simulates how the throughput of single payouts grows with cores and processes, from their measured costs:
//
//   node tools/scaling.mjs --machines 2x1,4x2,8x2,8x4,16x4,16x8
//
// A machine is given as its cores and its number of APIs, which is also that of its workers. docs/capacity.md
// describes what this leaves out. The same inputs give the same figures.
import { costs, readInputs } from './inputs.mjs';

/** Pairs of cores and processes. */
const machines = {
  pattern: /^[1-9]\d{0,2}x[1-9]\d{0,2}(,[1-9]\d{0,2}x[1-9]\d{0,2})*$/,
  expected: 'cores x processes',
  read: (text) => text.split(',').map((machine) => machine.split('x').map(Number)),
};
const of = readInputs({
  machines: ['2x1,4x2,8x2,8x4,16x4,16x8', 'cores x APIs, of which each has a worker', machines],
  ...costs,
});
const costMs = (part) => of[`${part}-ms`];

/** Number of rounds that a payout makes through Temporal, a worker and PostgreSQL. */
const rounds = 10;

/** Number of payouts: enough to leave out the first tenth, which finds an idle machine. */
const payouts = 3_000;

/** Returns a payout's steps. Each runs in one part, which for Node.js is one of several processes. */
function stepsOf(number, replicas) {
  const [api, worker] = ['api', 'worker'].map((part) => `${part} ${number % replicas}`);
  const round = [
    { part: 'temporal', ms: costMs('temporal') / rounds },
    { part: worker, ms: costMs('worker') / rounds },
    { part: 'postgres', ms: costMs('postgres') / rounds },
  ];
  // The request at the start and the bank's callback at the end.
  const edge = { part: api, ms: costMs('api') / 2 };
  return [edge, ...Array.from({ length: rounds }, () => round).flat(), edge];
}

/**
 * Runs steps first come, first served. Each occupies a core, and a Node.js process runs one at a time.
 *
 * @param {number[]} arrivalsMs when each payout arrives; if undefined, when another one ends
 */
function simulate({ cores, replicas }, arrivalsMs) {
  const busy = new Set();
  const waiting = [];
  const running = [];
  const took = [];
  let [now, begun, free] = [0, 0, cores];
  const begin = (atMs) => {
    waiting.push({ steps: stepsOf(begun, replicas), next: 0, atMs });
    begun += 1;
  };
  while (arrivalsMs[begun] === 0) begin(0);
  while (took.length < payouts) {
    for (let index = 0; index < waiting.length && free > 0; ) {
      const { part, ms } = waiting[index].steps[waiting[index].next];
      const isProcess = part.includes(' ');
      if (isProcess && busy.has(part)) {
        index += 1;
        continue;
      }
      if (isProcess) busy.add(part);
      free -= 1;
      running.push({ payout: waiting.splice(index, 1)[0], part, endsMs: now + ms });
    }
    running.sort((a, b) => a.endsMs - b.endsMs);
    const arrivesMs = arrivalsMs[begun] ?? Number.POSITIVE_INFINITY;
    if (arrivesMs < (running[0]?.endsMs ?? Number.POSITIVE_INFINITY)) {
      now = arrivesMs;
      begin(now);
      continue;
    }
    const { payout, part, endsMs } = running.shift();
    now = endsMs;
    busy.delete(part);
    free += 1;
    payout.next += 1;
    if (payout.next < payout.steps.length) {
      waiting.push(payout);
      continue;
    }
    took.push(now - payout.atMs);
    if (begun < payouts && arrivalsMs[begun] === undefined) begin(now);
  }
  const settled = took.slice(payouts / 10).sort((a, b) => a - b);
  return { perSecond: (payouts * 1_000) / now, p95Ms: settled[Math.floor(settled.length * 0.95)] };
}

/** Returns a seeded generator of random numbers between 0 and 1 (mulberry32). */
function seeded(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Returns Poisson arrivals, as from independent callers. */
function arrivals(perSecond) {
  const random = seeded(1);
  let atMs = 0;
  return Array.from({ length: payouts }, () => {
    atMs -= (Math.log(1 - random()) * 1_000) / perSecond;
    return atMs;
  });
}

const row = (...cells) => console.log(cells.map((cell) => String(cell).padStart(16)).join(''));
row('cores', 'APIs, workers', 'payouts/s', 'of each core', 'p95 ms at 60 %');
for (const [cores, replicas] of of.machines) {
  // Enough payouts in flight to keep every part busy.
  const { perSecond } = simulate({ cores, replicas }, Array(32 * replicas).fill(0));
  const { p95Ms } = simulate({ cores, replicas }, arrivals(0.6 * perSecond));
  const ofCore = perSecond / cores;
  row(cores, `${replicas} and ${replicas}`, perSecond.toFixed(0), ofCore.toFixed(1), p95Ms.toFixed(0));
}
