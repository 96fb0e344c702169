// Compares four ways of paying N payouts, sequentially on one stack; see ../README.md.
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { withBench } from './bench.mjs';
import { measureChild, mostPayouts } from './child.mjs';
import { measureDbos } from './dbos.mjs';
import { measureFloor } from './floor.mjs';
import { measureOurs } from './ours.mjs';
import { describeMachine, report } from './report.mjs';

const { values } = parseArgs({
  options: {
    payouts: { type: 'string', default: '10000' },
    batches: { type: 'string', default: '1' },
    'child-payouts': { type: 'string', default: '1000' },
    'child-at-once': { type: 'string', default: '50' },
    'dbos-payouts': { type: 'string', default: '1000' },
    'dbos-concurrency': { type: 'string', default: '30' },
    'dbos-polling-ms': { type: 'string', default: '50' },
    warmup: { type: 'string', default: '100' },
    only: { type: 'string' },
    data: { type: 'string', default: '.corridor/bench' },
    json: { type: 'string' },
  },
});

function count(name, most, least = 1) {
  const number = Number(values[name]);
  if (Number.isInteger(number) && number >= least && number <= most) return number;
  throw new Error(`--${name}: expected ${least} to ${most}, got ${values[name]}`);
}

const warmup = count('warmup', 10_000, 0);
const ways = {
  ours: {
    measure: measureOurs,
    options: { payouts: count('payouts', 10_000), batches: count('batches', 100), warmup },
  },
  floor: { measure: measureFloor, options: { payouts: count('payouts', 10_000), warmup } },
  child: {
    measure: measureChild,
    options: {
      payouts: count('child-payouts', mostPayouts),
      atOnce: count('child-at-once', 1_000),
      warmup,
    },
  },
  dbos: {
    measure: measureDbos,
    options: {
      payouts: count('dbos-payouts', 100_000),
      concurrency: count('dbos-concurrency', 10_000),
      pollingMs: count('dbos-polling-ms', 10_000),
      warmup,
    },
  },
};
const wanted = values.only?.split(',') ?? Object.keys(ways);
for (const name of wanted) {
  if (!Object.hasOwn(ways, name)) throw new Error('--only: expected ours, floor, child or dbos');
}

const sdk = new URL('./node_modules/@dbos-inc/dbos-sdk', import.meta.url);
// Fails now rather than after ten minutes of measuring the other ways.
if (wanted.includes('dbos') && !existsSync(sdk)) {
  throw new Error('DBOS is not installed: npm ci --prefix bench/batch, or --only ours,floor,child');
}

const machine = describeMachine();

const results = await withBench(values.data, async (bench) => {
  const measured = {};
  for (const name of wanted) {
    console.error(`  measuring ${name} …`);
    const { measure, options } = ways[name];
    measured[name] = await measure(bench, options);
  }
  return measured;
});

const problems = Object.entries(results).flatMap(([name, result]) =>
  result.problems.map((problem) => `${name}: ${problem}`),
);
if (problems.length > 0) {
  console.error(['No figures, because the payouts are wrong:', ...problems].join('\n  '));
  process.exitCode = 1;
} else {
  console.log(report(results, machine));
  if (values.json !== undefined) {
    await writeFile(values.json, `${JSON.stringify({ ...machine, ...results }, null, 2)}\n`);
  }
}
