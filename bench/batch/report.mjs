/** The figures as a table for people: one column a way. */
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
export function report(results, { node, cores, at }) {
  const names = Object.keys(results);
  const memory = eachProcess(results, 'peaksMb', 0, (name) => `peak of ${name}, MB`);
  const processor = eachProcess(results, 'processorMs', 2, (name) => `${name}, CPU ms a payout`);
  const table = [
    ['', ...names],
    ...[...rows, ...memory, ...processor].map(([label, figure]) => [
      label,
      ...names.map((name) => String(figure(results[name]) ?? '–')),
    ]),
  ];
  const lines = table.map(([label, ...cells]) =>
    [label.padEnd(30), ...cells.map((cell) => cell.padStart(14))].join(''),
  );
  return [`${at}, Node ${node}, ${cores} cores`, ...lines, ...ratios(results)].join('\n');
}

/** A row for each process that any of the ways has. */
function eachProcess(results, figures, digits, label) {
  const names = new Set(Object.values(results).flatMap((result) => Object.keys(result[figures])));
  return [...names].map((name) => [
    label(name),
    (result) => result[figures][name]?.toFixed(digits),
  ]);
}

function ratios({ ours, ...others }) {
  if (ours === undefined) return [];
  return Object.entries(others).map(([name, other]) => {
    const settled = (ours.settledPerSecond / other.settledPerSecond).toFixed(1);
    const announced = (ours.announcedPerSecond / other.announcedPerSecond).toFixed(1);
    return `ours against ${name}: ${settled} times as many settled, ${announced} times as many announced a second`;
  });
}
