// Plots the figures of a run without a library: two axes, lines, and a label at the end of each line.

const size = { width: 640, height: 360, left: 80, right: 150, top: 40, bottom: 48 };

/** Readable on light and dark pages, wherever the file is shown. */
const style = `
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600 }
  .axis, .grid { stroke: #8c959f; fill: none }
  .grid { stroke-opacity: 0.25 }
  .line { fill: none; stroke-width: 2 }
  .s0 { stroke: #0969da; fill: #0969da } .s1 { stroke: #bc4c00; fill: #bc4c00 }
  .s2 { stroke: #8250df; fill: #8250df } .s3 { stroke: #1a7f37; fill: #1a7f37 }
  text.s0, text.s1, text.s2, text.s3 { stroke: none }
  .line { fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .s0 { stroke: #58a6ff; fill: #58a6ff } .s1 { stroke: #f0883e; fill: #f0883e }
    .s2 { stroke: #bc8cff; fill: #bc8cff } .s3 { stroke: #3fb950; fill: #3fb950 }
    .line { fill: none }
  }`;

/** Returns the powers of ten that enclose the values. */
function decades(values) {
  const first = Math.floor(Math.log10(Math.min(...values)));
  const last = Math.ceil(Math.log10(Math.max(...values)));
  return Array.from({ length: last - first + 1 }, (_, index) => 10 ** (first + index));
}

/** Returns about five round numbers from zero to beyond the largest value. */
function steps(values) {
  const most = Math.max(...values);
  const power = 10 ** Math.floor(Math.log10(most / 5));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one * 5 >= most);
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) => index * step);
}

/** Returns a function that maps a value to a pixel position. */
function scale(ticks, isLogarithmic, from, to) {
  const at = isLogarithmic ? Math.log10 : (value) => value;
  const [first, last] = [at(ticks[0]), at(ticks.at(-1))];
  return (value) => from + ((at(value) - first) / (last - first)) * (to - from);
}

/**
 * Draws a chart. The vertical axis, for times, is logarithmic.
 *
 * @param {{ title: string, x: string, y: string, isXLogarithmic: boolean,
 *   lines: readonly { name: string, points: readonly (readonly [number, number])[] }[] }} chart
 */
function plot({ title, x, y, isXLogarithmic, lines }) {
  const { width, height, left, right, top, bottom } = size;
  const points = lines.flatMap((line) => line.points);
  const ticksOf = isXLogarithmic ? decades : steps;
  const ticks = [
    ticksOf(points.map((point) => point[0])),
    decades(points.map((point) => point[1])),
  ];
  const toX = scale(ticks[0], isXLogarithmic, left, width - right);
  const toY = scale(ticks[1], true, height - bottom, top);
  const shown = (value) => value.toLocaleString('en');
  const parts = [
    `<text class="title" x="${left}" y="20">${title}</text>`,
    ...ticks[0].map(
      (tick) =>
        `<text x="${toX(tick)}" y="${height - bottom + 18}" text-anchor="middle">${shown(tick)}</text>`,
    ),
    ...ticks[1].map(
      (tick) =>
        `<path class="grid" d="M${left} ${toY(tick)}H${width - right}"/>` +
        `<text x="${left - 8}" y="${toY(tick) + 4}" text-anchor="end">${shown(tick)}</text>`,
    ),
    `<path class="axis" d="M${left} ${top}V${height - bottom}H${width - right}"/>`,
    `<text x="${(left + width - right) / 2}" y="${height - 10}" text-anchor="middle">${x}</text>`,
    `<text transform="translate(16 ${(top + height - bottom) / 2}) rotate(-90)" text-anchor="middle">${y}</text>`,
    ...labelled(lines, toY).flatMap(({ name, points: own, labelY }, index) => {
      const path = own.map(([px, py]) => `${toX(px).toFixed(1)} ${toY(py).toFixed(1)}`).join('L');
      const [lastX] = own.at(-1);
      return [
        `<path class="line s${index}" d="M${path}"/>`,
        ...own.map(
          ([px, py]) => `<circle class="s${index}" cx="${toX(px)}" cy="${toY(py)}" r="3"/>`,
        ),
        `<text class="s${index}" x="${toX(lastX) + 10}" y="${labelY + 4}">${name}</text>`,
      ];
    }),
  ];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="${title}">`,
    `<style>${style}</style>`,
    ...parts,
    '</svg>\n',
  ].join('\n');
}

/** Positions labels at the ends of their lines, moved apart where lines end close to each other. */
function labelled(lines, toY) {
  const apartPx = 16;
  const sorted = lines
    .map((line, index) => ({ ...line, index, labelY: toY(line.points.at(-1)[1]) }))
    .sort((a, b) => a.labelY - b.labelY);
  for (let at = 1; at < sorted.length; at += 1) {
    sorted[at].labelY = Math.max(sorted[at].labelY, sorted[at - 1].labelY + apartPx);
  }
  return sorted.sort((a, b) => a.index - b.index);
}

/** Plots the time to the last webhook against the size of the batch. */
export function batchPlot({ batches }) {
  return plot({
    title: 'A batch, from its request to its last webhook',
    x: 'payouts in the batch',
    y: 'seconds',
    isXLogarithmic: true,
    lines: [
      { name: 'Corridor', points: batches.map(({ size: n, seconds }) => [n, seconds.ours]) },
      { name: 'the floor', points: batches.map(({ size: n, seconds }) => [n, seconds.floor]) },
    ],
  });
}

/** Plots the time to accept, measured from when each request was due, against the request rate. */
export function loadPlot({ load }) {
  const line = (name, way, figure) => ({
    name,
    points: load.map((point) => [point.aSecond, point[way][figure]]),
  });
  return plot({
    title: 'POST /v1/payouts at a constant rate',
    x: 'requests a second',
    y: 'milliseconds to the answer',
    isXLogarithmic: false,
    lines: [
      line('Corridor, p50', 'ours', 'p50'),
      line('Corridor, p95', 'ours', 'p95'),
      line('Temporal alone, p50', 'floor', 'p50'),
      line('Temporal alone, p95', 'floor', 'p95'),
    ],
  });
}
