import type { Server } from 'node:http';
import type { Logger } from 'pino';
import { type ApiConfig, readApiConfig } from '../config.js';
import { connectDatabase } from '../db/client.js';
import { neverBreaks, type Running, runProcess } from '../process.js';
import { createRails } from '../rails/registry.js';
import { createSandboxCallbacks } from '../rails/sandbox/callback.js';
import { createLog, createMetrics, serveMetrics } from '../telemetry.js';
import { connectTemporal } from '../temporal/client.js';
import { createApp } from './app.js';
import { createLimiter } from './rateLimit.js';
import { createHttpServer } from './server.js';

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
  const { SANDBOX_BANK_CALLBACK_SECRET: secret, SANDBOX_BANK_CALLBACK_SECRET_PREVIOUS: previous } =
    config;
  const metrics = createMetrics('api');
  const app = createApp({
    database,
    temporal,
    rails: createRails([createSandboxCallbacks(previous ? [secret, previous] : [secret])]),
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
    isStopping: () => http.isStopping(),
  });
  const handle = app.callback();
  // Koa answers its own failures; this promise never rejects.
  const http = createHttpServer((request, response) => void handle(request, response), log);
  const url = await listen(http.server, config.API_HOST, config.API_PORT);
  const metricsServer = await serveMetrics({
    host: config.METRICS_HOST,
    port: config.METRICS_PORT,
    metrics,
    isReady: () => Promise.resolve(!http.isStopping()),
  });
  log.info({ ready: url, metrics: metricsServer.url }, 'the API is ready');
  return {
    broken: neverBreaks(),
    stop: async () => {
      await http.stop(config.STOP_NOTICE_SECONDS * 1000);
      metricsServer.close();
      await temporal.connection.close();
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

/** The API process. */
await runProcess(
  async () => {
    const config = readApiConfig(process.env);
    return startApi(config, createLog({ part: 'api', level: config.LOG_LEVEL }));
  },
  () => createLog({ part: 'api', level: 'info' }),
);
