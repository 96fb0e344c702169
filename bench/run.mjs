// Runs all comparisons, interleaved, and prints the ratios: `npm run bench`; see README.md.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { percentile, totalMs } from './batch/report.mjs';
import { batchPlot, loadPlot } from './plot.mjs';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    sizes: { type: 'string', default: '100,1000,10000' },
    out: { type: 'string', default: '.corridor/bench-results' },
  },
});
const rounds = Number(values.rounds);
const sizes = values.sizes.split(',').map(Number);

/** Runs a script of this folder and returns the figures that it saves. */
async function figuresOf(script, ...args) {
  const path = join(values.out, 'figures.json');
  const url = new URL(script, import.meta.url);
  console.error([script, ...args].join(' '));
  const child = spawn(process.execPath, [fileURLToPath(url), ...args, '--json', path], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const code = await new Promise((resolve) => child.once('exit', resolve));
  if (code !== 0) throw new Error(`${script} ended with ${code}.`);
  return JSON.parse(await readFile(path, 'utf8'));
}

const median = (numbers) => percentile(numbers, 0.5);

/** Measures a batch of each size in rounds, our way and the floor one after the other on one stack. */
async function measureBatches() {
  const runs = Object.fromEntries(sizes.map((size) => [size, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const size of sizes) {
      const args = ['--only', 'ours,floor', '--warmup', '200', '--payouts', String(size)];
      runs[size].push(await figuresOf('./batch/compare.mjs', ...args));
    }
  }
  return sizes.map((size) => {
    const of = (figure) => ({
      ours: median(runs[size].map(({ ours }) => figure(ours))),
      floor: median(runs[size].map(({ floor }) => figure(floor))),
      ratio: median(runs[size].map(({ ours, floor }) => figure(ours) / figure(floor))),
    });
    return { size, seconds: of((way) => way.announcedSeconds), processorMs: of(totalMs) };
  });
}

/** Measures a workflow per payout with two engines. 500 are enough, because the time is proportional. */
async function measureOthers() {
  const hasDbos = existsSync(new URL('./batch/node_modules/@dbos-inc/dbos-sdk', import.meta.url));
  const ways = ['ours', 'child', ...(hasDbos ? ['dbos'] : [])];
  if (!hasDbos) console.error('without DBOS: npm ci --prefix bench/batch installs it');
  const found = await figuresOf(
    ...['./batch/compare.mjs', '--only', ways.join(','), '--payouts', '10000', '--warmup', '200'],
    ...['--child-payouts', '500', '--dbos-payouts', '500'],
  );
  return ways.slice(1).map((name) => ({
    name,
    aSecond: found[name].announcedPerSecond,
    timesAsFast: found.ours.announcedPerSecond / found[name].announcedPerSecond,
    timesTheProcessor: totalMs(found[name]) / totalMs(found.ours),
  }));
}

await mkdir(values.out, { recursive: true });
const batches = await measureBatches();
const others = await measureOthers();
const { accepting, whole, load, ...machine } = await figuresOf('./accept.mjs');
const results = { ...machine, batches, others, accepting, whole, load };

const times = (ratio) => `${ratio.toFixed(2)} times`;
for (const { size, seconds, processorMs: spent } of batches) {
  console.log(
    `batch of ${size}: ${times(seconds.ratio)} the floor's ${seconds.floor.toFixed(2)} s to the last ` +
      `webhook, ${times(spent.ratio)} its ${spent.floor.toFixed(2)} ms of processor a payout`,
  );
}
for (const { name, timesAsFast, timesTheProcessor } of others) {
  console.log(
    `batch of 10000: ${times(timesAsFast)} as fast as ${name}, which takes ` +
      `${times(timesTheProcessor)} the processor time a payout`,
  );
}
for (const { atOnce, ratio, floor50 } of accepting) {
  console.log(
    `accepted, ${atOnce} at once: ${times(ratio)} a bare Update-with-Start's ${floor50.toFixed(0)} ms`,
  );
}
console.log(
  `singles, ${whole.atOnce} at once: ${whole.ratio.toFixed(2)} of ${whole.empty.toFixed(0)} empty workflows a second`,
);
await writeFile(join(values.out, 'results.json'), `${JSON.stringify(results, null, 2)}\n`);
await writeFile(join(values.out, 'batch.svg'), batchPlot(results));
await writeFile(join(values.out, 'load.svg'), loadPlot(results));
console.log(`figures and plots: ${values.out}`);
