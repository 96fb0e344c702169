import { createServer, type Server } from 'node:http';
import type { Logger } from 'pino';
import { type ApiConfig, readApiConfig } from '../config.js';
import { connectDatabase } from '../db/client.js';
import { neverBreaks, type Running, runProcess } from '../process.js';
import { createRails } from '../rails/registry.js';
import { createSandboxRail } from '../rails/sandbox/connector.js';
import { createLog, createMetrics, serveMetrics } from '../telemetry.js';
import { connectTemporal } from '../temporal/client.js';
import { createApp } from './app.js';
import { createLimiter } from './rateLimit.js';

async function startApi(config: ApiConfig, log: Logger): Promise<Running> {
  const database = connectDatabase({
    url: config.DATABASE_URL,
    poolSize: config.DATABASE_POOL_SIZE,
    applicationName: 'corridor-api',
  });
  const temporal = connectTemporal({
    address: config.TEMPORAL_ADDRESS,
    namespace: config.TEMPORAL_NAMESPACE,
  });
  const rail = createSandboxRail({
    url: config.SANDBOX_BANK_URL,
    apiToken: config.SANDBOX_BANK_TOKEN,
    callbackSecret: config.SANDBOX_BANK_CALLBACK_SECRET,
  });
  const metrics = createMetrics('api');
  const app = createApp({
    database,
    temporal,
    rails: createRails([rail]),
    metrics,
    log,
    rateMaximumAgeMs: config.RATE_MAXIMUM_AGE_HOURS,
    webhookPolicy: {
      allowInsecure: config.WEBHOOKS_ALLOW_INSECURE,
      allowPrivateAddresses: config.WEBHOOKS_ALLOW_INSECURE,
    },
    fingerprintSecret: config.FINGERPRINT_SECRET,
    limiter: createLimiter({
      perSecond: config.RATE_LIMIT_PER_SECOND,
      burst: config.RATE_LIMIT_BURST,
      inFlight: config.IN_FLIGHT_LIMIT,
    }),
  });
  const handle = app.callback();
  const server = createServer(
    {
      // A client that sends its headers or its body a byte at a time is cut off.
      headersTimeout: 10_000,
      requestTimeout: 30_000,
      // Longer than the usual proxy keeps its side open, so that it is the one to close.
      keepAliveTimeout: 75_000,
    },
    // Koa answers its own failures; this promise never rejects.
    (request, response) => void handle(request, response),
  );
  const url = await listen(server, config.API_HOST, config.API_PORT);
  const metricsServer = await serveMetrics({
    host: config.METRICS_HOST,
    port: config.METRICS_PORT,
    metrics,
    isReady: () => Promise.resolve(server.listening),
  });
  log.info({ ready: url, metrics: metricsServer.url }, 'the API is ready');
  return {
    broken: neverBreaks(),
    stop: async () => {
      await closed(server);
      metricsServer.close();
      await Promise.all([rail.close(), temporal.connection.close()]);
      await database.end({ timeout: 5 });
    },
  };
}

async function listen(server: Server, host: string, port: number): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(port, host, resolve);
  });
  const address = server.address();
  return `http://${host}:${typeof address === 'object' && address !== null ? address.port : port}`;
}

/** A deploy does not wait for callers who asked to be kept waiting: they may ask again. */
const stopPatienceMs = 8_000;

/** How soon a connection is closed after its last answer while the process stops. */
const idleCheckMs = 50;

/**
 * Takes no new connection, finishes the requests it has, and closes the idle ones: also those
 * that become idle only now, which a client that keeps them open would hold for 75 s.
 */
async function closed(server: Server): Promise<void> {
  const done = new Promise<void>((resolve) => server.close(() => resolve()));
  const timer = setInterval(() => server.closeIdleConnections(), idleCheckMs);
  const limit = setTimeout(() => server.closeAllConnections(), stopPatienceMs);
  await done;
  clearInterval(timer);
  clearTimeout(limit);
}

/** The API process. */
await runProcess(
  async () => {
    const config = readApiConfig(process.env);
    return startApi(config, createLog({ part: 'api', level: config.LOG_LEVEL }));
  },
  () => createLog({ part: 'api', level: 'info' }),
);
