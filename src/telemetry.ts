import { createServer, type Server } from 'node:http';
import { type Logger, pino } from 'pino';
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

/** What a log line never shows, at the top of the object that is logged or one level below. */
const secretNames = [
  'authorization',
  'secret',
  'iban',
  'account_number',
  'pix_key',
  'tax_id',
  'key',
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

export type Metrics = ReturnType<typeof createMetrics>;

/** The metrics of one process, in Prometheus' form. */
export function createMetrics(part: string) {
  const registry = new Registry();
  registry.setDefaultLabels({ part });
  collectDefaultMetrics({ register: registry });
  const metric = (name: string, help: string) => ({
    name: `corridor_${name}`,
    help,
    registers: [registry],
  });
  return {
    registry,
    requestSeconds: new Histogram({
      ...metric('http_request_seconds', 'Time from the request to the end of its answer.'),
      labelNames: ['route', 'method', 'status'],
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3, 10],
    }),
    statementBreaks: new Gauge(
      metric('statement_breaks', "Differences between the bank's statements and the ledger."),
    ),
    balanceBreaks: new Gauge(
      metric('balance_breaks', "Customers' balances that are not the sum of their postings."),
    ),
    unreadableCallbacks: new Counter({
      ...metric(
        'unreadable_callbacks_total',
        'Callbacks that a rail has signed and that cannot be read: ask the rail what they say.',
      ),
      labelNames: ['rail'],
    }),
    wakeFailures: new Counter(
      metric(
        'wake_failures_total',
        'Payouts that could not be woken at once and were left to the sweep.',
      ),
    ),
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
  const url = await listen(server, options.host, options.port);
  return { url, close: () => server.close() };
}

/** Has a server listen, and returns its URL; port 0 is any that is free. */
export async function listen(server: Server, host: string, port: number): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(port, host, resolve);
  });
  const address = server.address();
  return `http://${host}:${typeof address === 'object' && address !== null ? address.port : port}`;
}

async function answer(path: string, registry: Registry, isReady: () => Promise<boolean>) {
  if (path === '/metrics') return { status: 200, body: await registry.metrics() };
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
