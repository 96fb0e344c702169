import { cpus, loadavg } from 'node:os';

/** The rows of the printed table, which has a column per way. */
const rows = [
  ['payouts', (r) => r.payouts],
  ['settled a second', (r) => r.settledPerSecond.toFixed(1)],
  ['announced a second', (r) => r.announcedPerSecond.toFixed(1)],
  ['request to last settled, s', (r) => r.settledSeconds.toFixed(2)],
  ['request to last webhook, s', (r) => r.announcedSeconds.toFixed(2)],
  ['a payout, ms', (r) => r.msAPayout.toFixed(3)],
  ['request to its answer, ms', (r) => (r.answeredMs ?? [r.answeredAfterMs]).join(' ')],
  ['API memory grows by, MB', (r) => r.apiGrowthMb?.toFixed(1)],
  ['Temporal workflows', (r) => r.workflows],
  ['transitions a payout', (r) => r.transitionsAPayout?.toFixed(3)],
  ['webhooks that came again', (r) => r.duplicates],
  ['at once', (r) => r.atOnce ?? r.concurrency],
];

/** @param {Record<string, object>} results by way */
export function report(results, machine) {
  const names = Object.keys(results);
  const memory = eachProcess(results, 'peaksMb', 0, (name) => `peak of ${name}, MB`);
  const processor = eachProcess(results, 'processorMs', 2, (name) => `${name}, CPU ms a payout`);
  const shares = [
    ['all of these, CPU ms a payout', (result) => totalMs(result).toFixed(2)],
    [
      'their share of the processors, %',
      (result) => ((totalMs(result) / (result.msAPayout * machine.cores)) * 100).toFixed(0),
    ],
  ];
  const table = [
    ['', ...names],
    ...[...rows, ...memory, ...processor, ...shares].map(([label, figure]) => [
      label,
      ...names.map((name) => String(figure(results[name]) ?? '–')),
    ]),
  ];
  const lines = table.map(([label, ...cells]) =>
    [label.padEnd(34), ...cells.map((cell) => cell.padStart(10))].join(''),
  );
  return [heading(machine), ...lines, ...ratios(results)].join('\n');
}

/** Describes the machine and its load. To be called before anything is started. */
export function describeMachine() {
  const [loadBefore] = loadavg();
  return {
    node: process.version,
    cores: cpus().length,
    at: new Date().toISOString(),
    loadBefore,
  };
}

/** Returns the percentile of the figures for a share from 0 to 1 (nearest rank). */
export function percentile(figures, share) {
  return figures.toSorted((a, b) => a - b)[Math.ceil(share * figures.length) - 1];
}

/** Formats the time and machine, with the load before the run, because any load makes times worthless. */
export function heading({ at, node, cores, loadBefore }) {
  return `${at}, Node ${node}, ${cores} cores, load before ${loadBefore.toFixed(1)}`;
}

/** Returns a table row for each process of any way. */
function eachProcess(results, figures, digits, label) {
  const names = new Set(Object.values(results).flatMap((result) => Object.keys(result[figures])));
  return [...names].map((name) => [
    label(name),
    (result) => result[figures][name]?.toFixed(digits),
  ]);
}

/** Returns the CPU time per payout of all of a way's processes together. */
export function totalMs({ processorMs }) {
  return Object.values(processorMs).reduce((sum, ms) => sum + ms, 0);
}

function ratios({ ours, ...others }) {
  if (ours === undefined) return [];
  return Object.entries(others).map(([name, other]) => {
    const settled = (ours.settledPerSecond / other.settledPerSecond).toFixed(1);
    const announced = (ours.announcedPerSecond / other.announcedPerSecond).toFixed(1);
    const processor = (totalMs(other) / totalMs(ours)).toFixed(1);
    return [
      `ours against ${name}: ${settled} times as many settled a second, ${announced} times as many`,
      `announced, and ${processor} times as many for the same processor time`,
    ].join(' ');
  });
}
