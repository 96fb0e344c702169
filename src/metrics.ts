import type { Registry } from 'prom-client';
import described from './metrics.json' with { type: 'json' };

type Described = {
  readonly [name: string]: { readonly help: string; readonly labels?: readonly string[] };
};

/** Creates metrics from their descriptions. They are global, so nothing has to pass them around. */
function made<T>(
  described: Described,
  make: (settings: { name: string; help: string; labelNames: string[]; registers: [] }) => T,
): ReadonlyMap<string, T> {
  return new Map(
    Object.entries(described).map(([name, { labels = [], ...rest }]) => {
      const settings = { ...rest, name: `corridor_${name}`, labelNames: [...labels] };
      return [name, make({ ...settings, registers: [] })];
    }),
  );
}

const backlogs = { ...described.database, ...described.temporal };

function makeMetrics({ Counter, Histogram, Gauge }: typeof import('prom-client')) {
  return {
    counters: made(described.counters, (settings) => new Counter(settings)),
    histograms: made(described.histograms, (settings) => new Histogram(settings)),
    gauges: made({ ...described.gauges, ...backlogs }, (settings) => {
      const gauge = new Gauge(settings);
      // Absent until first set: a value that has not been read yet is not zero.
      if (settings.labelNames.length === 0) gauge.remove();
      return gauge;
    }),
  };
}

/** Undefined before `createRegistry`: the CLI has no metrics and starts faster without the library. */
let metrics: ReturnType<typeof makeMetrics> | undefined;

type Labels = Readonly<Record<string, string>>;

export function count(name: keyof typeof described.counters, labels: Labels, by = 1): void {
  metrics?.counters.get(name)?.inc(labels, by);
}

export function observe(
  name: keyof typeof described.histograms,
  labels: Labels,
  seconds: number,
): void {
  metrics?.histograms.get(name)?.observe(labels, seconds);
}

export function show(name: keyof typeof described.gauges, labels: Labels, value: number): void {
  metrics?.gauges.get(name)?.set(labels, value);
}

/** Changes a gauge by a difference, for values that are counted up and down. */
export function raise(name: keyof typeof described.gauges, by: number): void {
  metrics?.gauges.get(name)?.inc(by);
}

/** One backlog reading: how many items are waiting, or for how long. */
export type BacklogSample = {
  readonly metric: keyof typeof backlogs;
  readonly labels: Labels;
  readonly value: number;
};

/** Replaces all backlog gauges of a source. Labels missing from this reading disappear. */
export function showBacklog(
  from: 'database' | 'temporal',
  samples: readonly BacklogSample[],
): void {
  for (const name of Object.keys(described[from])) metrics?.gauges.get(name)?.reset();
  for (const { metric, labels, value } of samples) metrics?.gauges.get(metric)?.set(labels, value);
  show('backlog_read_timestamp_seconds', { from }, Date.now() / 1000);
}

/** Creates the Prometheus registry of this process. Values recorded before this call are lost. */
export async function createRegistry(part: string): Promise<Registry> {
  const prometheus = await import('prom-client');
  metrics ??= makeMetrics(prometheus);
  const registry = new prometheus.Registry();
  registry.setDefaultLabels({ part });
  prometheus.collectDefaultMetrics({ register: registry });
  for (const metric of Object.values(metrics).flatMap((made) => [...made.values()])) {
    registry.registerMetric(metric);
  }
  return registry;
}
