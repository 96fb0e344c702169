import { createServer, type Server } from 'node:http';
import { type Logger, pino } from 'pino';
import {
  Counter,
  collectDefaultMetrics,
  Gauge,
  type GaugeConfiguration,
  Histogram,
  Registry,
} from 'prom-client';

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

/** A metric that no registry has yet. */
const metric = (name: string, help: string, labelNames: readonly string[] = []) => ({
  name: `corridor_${name}`,
  help,
  labelNames: [...labelNames],
  registers: [],
});

const millisecondsToSeconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
/** From a settlement at once to the longest that a rail of ours may take. */
const secondsToDays = [0.5, 1, 5, 30, 60, 300, 1_800, 3_600, 14_400, 86_400, 259_200, 432_000];

/** What is measured where it happens: these are one a process, so nothing has to pass them on. */
export const measured = {
  payoutMoves: new Counter(
    metric('payout_moves_total', 'Payouts that have reached a status.', [
      ...['status', 'corridor', 'mode'],
    ]),
  ),
  acceptance: new Histogram({
    ...metric('payout_acceptance_seconds', 'Time from the request of a payout to its decision.'),
    buckets: millisecondsToSeconds,
  }),
  settlement: new Histogram({
    ...metric('payout_settlement_seconds', 'Time from the request to the settlement.', ['rail']),
    buckets: secondsToDays,
  }),
  railCalls: new Histogram({
    ...metric('rail_call_seconds', 'Time that calls to a rail took.', ['rail', 'operation']),
    buckets: millisecondsToSeconds,
  }),
  railAnswers: new Counter(
    metric('rail_answers_total', 'Answers of a rail, each about one order.', [
      ...['rail', 'operation', 'answer'],
    ]),
  ),
  deliveries: new Counter(
    metric('webhook_attempts_total', 'Attempts to deliver an event, by outcome.', ['outcome']),
  ),
  deliveryLag: new Histogram({
    ...metric('webhook_delivery_lag_seconds', 'Time from an event to its delivery.'),
    buckets: secondsToDays,
  }),
  connections: new Gauge(metric('database_connections', 'Open database connections.')),
  connectionLimit: new Gauge(
    metric('database_connections_limit', 'Database connections that this process may hold.'),
  ),
  transactions: new Gauge(
    metric('database_transactions', 'Transactions that are open or wait for a connection.'),
  ),
  connectionWait: new Histogram({
    ...metric('database_wait_seconds', 'Time that a transaction waited before it began.'),
    buckets: millisecondsToSeconds,
  }),
};

const unfinished = ['status', 'corridor', 'mode', 'state'];
const parked = ['reason', 'mode'];
const state = ['state'];
const queue = ['task_queue', 'kind'];
/** What waits, as it is read from the database and from Temporal. */
const backlogMetrics = [
  ['payouts_unfinished', 'Payouts that are not final, 10,000 an account and status.', unfinished],
  ['payouts_unfinished_oldest_seconds', 'Age of the oldest of them.', unfinished],
  ['payouts_parked', 'Payouts that wait for an operator.', parked],
  ['payouts_parked_oldest_seconds', 'How long the first of them has waited.', parked],
  ['webhook_backlog', 'Deliveries that are not made, 10,000 an endpoint.', state],
  ['webhook_backlog_oldest_seconds', 'For how long the first of them has been due.', state],
  ['webhook_endpoints', 'Webhook endpoints.', state],
  ['batches_open', 'Batches with items that are not final.', state],
  ['batches_open_oldest_seconds', 'Age of the oldest of them.', state],
  ['rate_age_seconds', 'Age of the rate that prices are made of.', ['currency']],
  ['rate_age_limit_seconds', 'Older rates make no prices.', []],
  ['rates_waiting', 'Rates that have jumped and wait for an operator.', []],
  ['task_queue_backlog', 'Tasks that no worker has taken, approximately.', queue],
  ['task_queue_backlog_oldest_seconds', 'Age of the oldest of them.', queue],
] as const;

/** A value of one of these. */
export type BacklogSample = {
  readonly metric: (typeof backlogMetrics)[number][0];
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
};

/** A gauge that is not shown before it is set: no comparison is not the same as no difference. */
function unset(described: GaugeConfiguration<string>): Gauge {
  const gauge = new Gauge(described);
  gauge.remove();
  return gauge;
}

/** The metrics of one process, in Prometheus' form. */
export function createMetrics(part: string) {
  const registry = new Registry();
  registry.setDefaultLabels({ part });
  collectDefaultMetrics({ register: registry });
  const ownMetric = (...described: Parameters<typeof metric>) => ({
    ...metric(...described),
    registers: [registry],
  });
  for (const shared of Object.values(measured)) registry.registerMetric(shared);
  return {
    registry,
    requestSeconds: new Histogram({
      ...ownMetric('http_request_seconds', 'Time from the request to the end of its answer.', [
        ...['route', 'method', 'status'],
      ]),
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3, 10],
    }),
    unreadableCallbacks: new Counter(
      ownMetric(
        'unreadable_callbacks_total',
        'Callbacks that a rail has signed and that cannot be read: ask the rail what they say.',
        ['rail'],
      ),
    ),
    wakeFailures: new Counter(
      ownMetric(
        'wake_failures_total',
        'Payouts that could not be woken at once and were left to the sweep.',
      ),
    ),
    statementBreaks: unset(
      ownMetric('statement_breaks', "Differences between the bank's statements and the ledger."),
    ),
    ledgerDrift: new Gauge(
      ownMetric(
        'ledger_drift_minor',
        'What the bank has moved on closed days, less what the ledger has, in minor units.',
        ['currency', 'direction'],
      ),
    ),
    balanceBreaks: unset(
      ownMetric('balance_breaks', "Customers' balances that are not the sum of their postings."),
    ),
    // Any worker may make the next comparison: the latest one counts.
    booksCompared: new Gauge(
      ownMetric('books_compared_timestamp_seconds', 'When this process last compared them.', [
        'books',
      ]),
    ),
  };
}

/** Gauges of what waits, and what fills them: what a read does not find any more is not shown. */
export function createBacklogGauges({ registry }: Metrics) {
  const gauges = new Map(
    backlogMetrics.map(([name, help, labelNames]) => [
      name,
      new Gauge({ ...metric(name, help, labelNames), registers: [registry] }),
    ]),
  );
  const readAt = new Gauge({
    ...metric('backlog_read_timestamp_seconds', 'When what waits was last read.', ['from']),
    registers: [registry],
  });
  return (from: 'database' | 'temporal', samples: readonly BacklogSample[]): void => {
    for (const [name, gauge] of gauges) {
      if (name.startsWith('task_queue') === (from === 'temporal')) gauge.reset();
    }
    for (const { metric: name, labels, value } of samples) gauges.get(name)?.set(labels, value);
    readAt.labels(from).setToCurrentTime();
  };
}

type MetricsServer = {
  readonly host: string;
  readonly port: number;
  readonly metrics: Metrics;
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
  const { contentType } = options.metrics.registry;
  const server = createServer((request, response) => {
    answer(request.url ?? '', options).then(
      ({ status, body }) => response.writeHead(status, { 'content-type': contentType }).end(body),
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

/** An address on this machine that is free now, for what does not say which one it has taken. */
export async function freeAddress(): Promise<string> {
  const server = createServer();
  const { host } = new URL(await listen(server, '127.0.0.1', 0));
  await new Promise((resolve) => server.close(resolve));
  return host;
}

async function answer(path: string, { metrics, isReady, refresh, others }: MetricsServer) {
  if (path === '/metrics') {
    await refresh?.();
    const own = await metrics.registry.metrics();
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
