import { createServer, type Server } from 'node:http';
import { type Logger, pino } from 'pino';
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import described from './telemetry.json' with { type: 'json' };

/** What a log line never shows, at the top of the object that is logged or one level below. */
export const secretNames: readonly string[] = [
  'authorization',
  'secret',
  'key',
  'iban',
  'account_number',
  'pix_key',
  'tax_id',
  'date_of_birth',
  'registration_number',
];
const redacted = secretNames.flatMap((name) => [name, `*.${name}`]);

/** Structured logs on standard output, one JSON object a line. */
export function createLog(options: { readonly part: string; readonly level: string }): Logger {
  const settings = {
    level: options.level,
    base: { part: options.part },
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: redacted, censor: '[redacted]' },
    formatters: { level: (label: string) => ({ level: label }) },
  };
  return pino(settings, together());
}

/** What is logged within so long is one write: nobody who reads along notices. */
const writeAfterMs = 10;

/** Writes lines together, also at an exit: only what kills the process at once loses some. */
function together() {
  const output = pino.destination({ dest: 1, sync: true, minLength: 8 * 1024 });
  let isDue = false;
  const flush = () => {
    isDue = false;
    output.flushSync();
  };
  process.once('exit', flush);
  return {
    write: (line: string) => {
      output.write(line);
      if (!isDue) setTimeout(flush, writeAfterMs).unref();
      isDue = true;
    },
  };
}

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

const counters = made(described.counters, (settings) => new Counter(settings));
const histograms = made(described.histograms, (settings) => new Histogram(settings));
const backlogs = { ...described.database, ...described.temporal };
const gauges = made({ ...described.gauges, ...backlogs }, (settings) => {
  const gauge = new Gauge(settings);
  // It is not shown before it is set: what nobody has looked at is not zero.
  if (settings.labelNames.length === 0) gauge.remove();
  return gauge;
});

type Labels = Readonly<Record<string, string>>;

export function count(name: keyof typeof described.counters, labels: Labels, by = 1): void {
  counters.get(name)?.inc(labels, by);
}

export function observe(
  name: keyof typeof described.histograms,
  labels: Labels,
  seconds: number,
): void {
  histograms.get(name)?.observe(labels, seconds);
}

export function show(name: keyof typeof described.gauges, labels: Labels, value: number): void {
  gauges.get(name)?.set(labels, value);
}

/** What changes by one now and then. */
export function raise(name: keyof typeof described.gauges, by: number): void {
  gauges.get(name)?.inc(by);
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
  for (const name of Object.keys(described[from])) gauges.get(name)?.reset();
  for (const { metric, labels, value } of samples) gauges.get(metric)?.set(labels, value);
  show('backlog_read_timestamp_seconds', { from }, Date.now() / 1000);
}

/** The metrics of this process, in Prometheus' form. */
export function createRegistry(part: string): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ part });
  collectDefaultMetrics({ register: registry });
  for (const metric of [counters, histograms, gauges].flatMap((made) => [...made.values()])) {
    registry.registerMetric(metric);
  }
  return registry;
}

type MetricsServer = {
  readonly host: string;
  readonly port: number;
  readonly registry: Registry;
  readonly isReady: () => Promise<boolean>;
  /** Brings what is shown up to date; it never rejects. */
  readonly refresh?: () => Promise<void>;
  /** Metrics of another registry in this process, which are shown beside its own. */
  readonly others?: () => Promise<string>;
};

/**
 * Serves `/metrics`, `/livez` (the process turns) and `/readyz` (it can do its work) on a port
 * of their own, away from integrators. Returns the URL that it listens on.
 */
export async function serveMetrics(
  options: MetricsServer,
): Promise<{ readonly url: string; readonly close: () => void }> {
  const server = createServer(({ url = '', headers }, response) => {
    const { contentType } = options.registry;
    const isOpenMetrics =
      url === '/metrics' && headers.accept?.includes('application/openmetrics-text');
    answer(url, options).then(
      ({ status, body }) =>
        isOpenMetrics
          ? response.writeHead(status, { 'content-type': openMetricsType }).end(openMetrics(body))
          : response.writeHead(status, { 'content-type': contentType }).end(body),
      () => response.writeHead(503).end('not ready\n'),
    );
  });
  const url = await listen(server, options.host, options.port);
  return { url, close: () => server.close() };
}

const openMetricsType = 'application/openmetrics-text; version=1.0.0; charset=utf-8';

/**
 * Prometheus' text as OpenMetrics: a counter is described without the `_total` of its samples, quotes are
 * escaped in descriptions, no line is empty, and the end is marked. prom-client has a form of its own for
 * the whole registry, which scrapes at the same time could not choose, and not for the SDK's metrics.
 */
function openMetrics(text: string): string {
  const lines = text.split('\n').filter((line) => line !== '');
  const counters = lines.flatMap((line) => /^# TYPE (\w+)_total counter$/.exec(line)?.[1] ?? []);
  const isCounter = new Set(counters);
  const described = (line: string) =>
    line
      .replace(/^(# \w+ )(\w+)_total /, (all, begin: string, name: string) =>
        isCounter.has(name) ? `${begin}${name} ` : all,
      )
      .replace(/"/g, '\\"');
  const shown = lines.map((line) => (line.startsWith('#') ? described(line) : line));
  return `${[...shown, '# EOF'].join('\n')}\n`;
}

/** Has a server listen, and returns its URL; port 0 is any that is free. */
export async function listen(server: Server, host: string, port: number): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(port, host, resolve);
  });
  const address = server.address();
  return `http://${host}:${typeof address === 'object' && address !== null ? address.port : port}`;
}

/** An address on this machine that is free now, for what does not say which one it has taken. */
export async function freeAddress(): Promise<string> {
  const server = createServer();
  const { host } = new URL(await listen(server, '127.0.0.1', 0));
  await new Promise((resolve) => server.close(resolve));
  return host;
}

async function answer(path: string, { registry, isReady, refresh, others }: MetricsServer) {
  if (path === '/metrics') {
    // Before what may take time: Prometheus compares it with its own clock when it asked.
    show('clock_seconds', {}, Date.now() / 1000);
    await refresh?.();
    const own = await registry.metrics();
    return { status: 200, body: own + ((await others?.().catch(() => '')) ?? '') };
  }
  if (path === '/livez') return { status: 200, body: 'ok\n' };
  if (path !== '/readyz') return { status: 404, body: 'not found\n' };
  return (await isReady())
    ? { status: 200, body: 'ready\n' }
    : { status: 503, body: 'not ready\n' };
}

/** What is found in texts that callers sent, and may not be repeated to anybody. */
const secrets: readonly (readonly [pattern: RegExp, shown: string])[] = [
  // API keys, also mistyped ones, and the secrets of webhook endpoints.
  [/\b(cor_(?:test|live)|whsec)_[\w+/=-]+/g, '$1_…'],
  // IBANs (ISO 13616), as they are written by machines and by people; the last four are shown.
  [/\b[a-z]{2}\d{2}(?:[ -]?[a-z0-9]){7,26}((?:[ -]?[a-z0-9]){4})\b/gi, '…$1'],
];

/**
 * A text without the keys and account numbers that stand in it: people put them into paths,
 * and into parameters that are meant for something else.
 */
export function withoutSecrets(text: string): string {
  return secrets.reduce((shown, [pattern, mask]) => shown.replace(pattern, mask), text);
}
