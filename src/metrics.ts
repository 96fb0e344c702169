import type { Registry } from 'prom-client';
import described from './metrics.json' with { type: 'json' };

type Described = {
  readonly [name: string]: { readonly help: string; readonly labels?: readonly string[] };
};

/** Makes metrics of their descriptions. They are one a process, so nothing has to pass them on. */
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
      // It is not shown before it is set: what nobody has looked at is not zero.
      if (settings.labelNames.length === 0) gauge.remove();
      return gauge;
    }),
  };
}

/** None before `createRegistry`: the command line has no metrics, and starts sooner without the library. */
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

/** What changes by one now and then. */
export function raise(name: keyof typeof described.gauges, by: number): void {
  metrics?.gauges.get(name)?.inc(by);
}

/** How many wait of something, or for how long. */
export type BacklogSample = {
  readonly metric: keyof typeof backlogs;
  readonly labels: Labels;
  readonly value: number;
};

/** Shows what waits. What a read does not find any more is not shown any more. */
export function showBacklog(
  from: 'database' | 'temporal',
  samples: readonly BacklogSample[],
): void {
  for (const name of Object.keys(described[from])) metrics?.gauges.get(name)?.reset();
  for (const { metric, labels, value } of samples) metrics?.gauges.get(metric)?.set(labels, value);
  show('backlog_read_timestamp_seconds', { from }, Date.now() / 1000);
}

/** The metrics of this process, in Prometheus' form; what is recorded before is in none. */
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
