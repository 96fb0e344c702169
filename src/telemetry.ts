import { createServer } from 'node:http';
import { type Logger, pino } from 'pino';
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

/** What a log line never shows, wherever it stands in the object that is logged. */
const redacted = [
  'authorization',
  '*.authorization',
  'secret',
  '*.secret',
  'iban',
  '*.iban',
  'account_number',
  '*.account_number',
  'key',
  '*.key',
];

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

export type Metrics = {
  readonly registry: Registry;
  readonly requestSeconds: Histogram<'route' | 'method' | 'status'>;
  readonly wakeFailures: Counter;
  readonly unreadableCallbacks: Counter<'rail'>;
  readonly statementBreaks: Gauge;
  readonly balanceBreaks: Gauge;
};

/** The metrics of one process, in Prometheus' form. */
export function createMetrics(part: string): Metrics {
  const registry = new Registry();
  registry.setDefaultLabels({ part });
  collectDefaultMetrics({ register: registry });
  return {
    registry,
    requestSeconds: new Histogram({
      name: 'corridor_http_request_seconds',
      help: 'Time from the request to the end of its answer.',
      labelNames: ['route', 'method', 'status'],
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3, 10],
      registers: [registry],
    }),
    statementBreaks: new Gauge({
      name: 'corridor_statement_breaks',
      help: "Differences between the bank's statements and the ledger.",
      registers: [registry],
    }),
    balanceBreaks: new Gauge({
      name: 'corridor_balance_breaks',
      help: "Customers' balances that are not the sum of their postings.",
      registers: [registry],
    }),
    unreadableCallbacks: new Counter({
      name: 'corridor_unreadable_callbacks_total',
      help: 'Callbacks that a rail has signed and that cannot be read: ask the rail what they say.',
      labelNames: ['rail'],
      registers: [registry],
    }),
    wakeFailures: new Counter({
      name: 'corridor_wake_failures_total',
      help: 'Payouts that could not be woken at once and were left to the sweep.',
      registers: [registry],
    }),
  };
}

/**
 * Serves `/metrics`, `/livez` (the process turns) and `/readyz` (it can do its work) on a port
 * of their own, away from integrators. Returns the URL that it listens on.
 */
export async function serveMetrics(options: {
  readonly host: string;
  readonly port: number;
  readonly metrics: Metrics;
  readonly isReady: () => Promise<boolean>;
}): Promise<{ readonly url: string; readonly close: () => void }> {
  const { registry } = options.metrics;
  const server = createServer((request, response) => {
    answer(request.url ?? '', registry, options.isReady).then(
      ({ status, body }) => response.writeHead(status, { 'content-type': 'text/plain' }).end(body),
      () => response.writeHead(503).end('not ready\n'),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(options.port, options.host, resolve);
  });
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : options.port;
  return { url: `http://${options.host}:${port}`, close: () => server.close() };
}

async function answer(path: string, registry: Registry, isReady: () => Promise<boolean>) {
  switch (path) {
    case '/metrics':
      return { status: 200, body: await registry.metrics() };
    case '/livez':
      return { status: 200, body: 'ok\n' };
    case '/readyz': {
      const ready = await isReady();
      return { status: ready ? 200 : 503, body: ready ? 'ready\n' : 'not ready\n' };
    }
    default:
      return { status: 404, body: 'not found\n' };
  }
}
