import { createServer, type Server } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Registry } from 'prom-client';
import { show } from './metrics.js';

type MetricsServer = {
  readonly host: string;
  readonly port: number;
  readonly registry: Registry;
  /** Made by `watchReadiness`. */
  readonly isReady: () => Promise<boolean>;
  /** Updates the metrics before they are served; never rejects. */
  readonly refresh?: () => Promise<void>;
  /** Metrics of another registry in this process, served together with `registry`. */
  readonly others?: () => Promise<string>;
};

/**
 * Serves `/metrics`, `/livez` (the process is alive) and `/readyz` (it can do its work) on a separate
 * port that integrators cannot reach. Returns the URL that it listens on.
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

/** How long a check of readiness may take: Prometheus waits 10 s for a scrape, and a vanished host never answers. */
const readinessLimitMs = 3_000;

/**
 * Makes the check of readiness from one that returns why the process cannot do its work. Its result is also a
 * metric, and each change is logged with the reason: a process that is not ready gets no requests to log.
 */
export function watchReadiness(log: Logger, whyUnready: () => Promise<string | undefined>) {
  let wasReady = true;
  return async (): Promise<boolean> => {
    const late = delay(readinessLimitMs, 'no answer within 3 s', { ref: false });
    const reason = await Promise.race([whyUnready().catch(String), late]);
    const isReady = reason === undefined;
    show('ready', {}, Number(isReady));
    const change = isReady ? 'ready again' : 'not ready';
    if (isReady !== wasReady) log.warn({ reason }, `the process is ${change}`);
    wasReady = isReady;
    return isReady;
  };
}

const openMetricsType = 'application/openmetrics-text; version=1.0.0; charset=utf-8';

/**
 * Converts Prometheus text to OpenMetrics: counter descriptions drop the `_total` of their samples, quotes
 * in descriptions are escaped, empty lines are removed, and `# EOF` marks the end. prom-client sets the
 * format per registry, so concurrent scrapes could not differ, and cannot convert the SDK's metrics.
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

/** Starts listening and returns the server's URL; port 0 picks a free one. */
export async function listen(server: Server, host: string, port: number): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(port, host, resolve);
  });
  const address = server.address();
  return `http://${host}:${typeof address === 'object' && address !== null ? address.port : port}`;
}

/** Returns a local address that is free now, for servers that cannot report which port they picked. */
export async function freeAddress(): Promise<string> {
  const server = createServer();
  const { host } = new URL(await listen(server, '127.0.0.1', 0));
  await new Promise((resolve) => server.close(resolve));
  return host;
}

async function answer(path: string, { registry, isReady, refresh, others }: MetricsServer) {
  if (path === '/metrics') {
    // First, before the slow reads: Prometheus compares it with its own clock at the time of the scrape.
    show('clock_seconds', {}, Date.now() / 1000);
    await Promise.all([isReady(), refresh?.()]);
    const own = await registry.metrics();
    return { status: 200, body: own + ((await others?.().catch(() => '')) ?? '') };
  }
  if (path === '/livez') return { status: 200, body: 'ok\n' };
  if (path !== '/readyz') return { status: 404, body: 'not found\n' };
  return (await isReady())
    ? { status: 200, body: 'ready\n' }
    : { status: 503, body: 'not ready\n' };
}
