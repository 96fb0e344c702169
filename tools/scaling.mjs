// How single payouts a second grow with cores and processes, by simulating what each was measured to take:
//
//   node tools/scaling.mjs --machines 2x1,4x2,8x2,8x4,16x4,16x8
//
// A machine is its cores and how many APIs and workers it has of each; docs/capacity.md says what this
// leaves out. The same inputs give the same figures.
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

/** A payout makes this many rounds through Temporal, a worker and PostgreSQL. */
const rounds = 10;

/** Enough that the first tenth, which finds an idle machine, can be left out. */
const payouts = 3_000;

/** The steps of the payout with this number, each of one part, which for Node is one of its processes. */
function stepsOf(number, replicas) {
  const [api, worker] = ['api', 'worker'].map((part) => `${part} ${number % replicas}`);
  const round = [
    { part: 'temporal', ms: costMs('temporal') / rounds },
    { part: worker, ms: costMs('worker') / rounds },
    { part: 'postgres', ms: costMs('postgres') / rounds },
  ];
  // The request, and at the end the callback of the bank.
  const edge = { part: api, ms: costMs('api') / 2 };
  return [edge, ...Array.from({ length: rounds }, () => round).flat(), edge];
}

/**
 * Runs steps first come, first served. Each takes a core, and a process of Node runs one at a time.
 *
 * @param {number[]} arrivalsMs when each payout comes; one that is undefined comes when another ends
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

/** The same numbers between 0 and 1 each time (mulberry32). */
function seeded(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Poisson arrivals: callers who do not know of each other. */
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
  // As many under way as keep every part busy.
  const { perSecond } = simulate({ cores, replicas }, Array(32 * replicas).fill(0));
  const { p95Ms } = simulate({ cores, replicas }, arrivals(0.6 * perSecond));
  const ofCore = perSecond / cores;
  row(cores, `${replicas} and ${replicas}`, perSecond.toFixed(0), ofCore.toFixed(1), p95Ms.toFixed(0));
}
