import type { RequestListener } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { type ApiConfig, rateAgesOf, readApiConfig } from '../config.js';
import { hasMasterKeys } from '../db/accountKeys.js';
import { connectDatabase, type Database } from '../db/client.js';
import { isMigrated } from '../db/migrate.js';
import { createKeyring, type Keyring } from '../db/personalData.js';
import { createLog } from '../log.js';
import { count, createRegistry, show } from '../metrics.js';
import { listen, serveMetrics, watchReadiness } from '../metricsServer.js';
import { type Running, runProcess, tracingOf } from '../process.js';
import { createRails } from '../rails/registry.js';
import { createSandboxCallbacks } from '../rails/sandbox/callback.js';
import { connectTemporal, refusalOf } from '../temporal/client.js';
import { readSigningKey } from '../webhooks/signature.js';
import { createApp } from './app.js';
import { createBacklog } from './backlog.js';
import { cached } from './cached.js';
import { trustProxies } from './clientAddress.js';
import { createDecisionWaits } from './decisionWaits.js';
import { createFeedWaits } from './feedWaits.js';
import { createHttpServer } from './httpServer.js';
import { createLimiter } from './rateLimit.js';

/**
 * Lists have separate connections, so that they cannot occupy those of all other requests. The slowest list
 * that is served by indexes takes milliseconds.
 */
const listConnections = { poolSize: 8, statementTimeoutMs: 1_000 } as const;

/** How long the result of one readiness check is reused for all callers. */
const readinessMs = 2_000;

async function startApi(config: ApiConfig, log: Logger): Promise<Running> {
  // Created first, so that it measures all that follows.
  const registry = await createRegistry('api');
  const connection = { url: config.DATABASE_URL, applicationName: 'corridor-api' };
  const { DATABASE_POOL_SIZE: poolSize } = config;
  const database = connectDatabase({ ...connection, poolSize, keepsPlans: true });
  const lists = connectDatabase({ ...connection, ...listConnections });
  const tracing = await tracingOf('api', config, log);
  const temporal = connectTemporal(config, tracing?.plugins);
  const { SANDBOX_BANK_CALLBACK_SECRET: secret, SANDBOX_BANK_CALLBACK_SECRET_PREVIOUS: previous } =
    config;
  const rails = createRails([createSandboxCallbacks(previous ? [secret, previous] : [secret])]);
  // Starts at zero: a counter that first appears as one shows no increase.
  for (const rail of rails.keys()) count('unreadable_callbacks_total', { rail }, 0);
  const keyring = createKeyring(config.MASTER_KEY);
  const proxies = trustProxies(config.TRUSTED_PROXIES);
  const feedWaits = createFeedWaits(database);
  const app = createApp({
    database,
    lists,
    feedWaits,
    decisionWaits: createDecisionWaits(database, log),
    temporal,
    rails,
    log,
    rateMaximumAgeMs: rateAgesOf(config),
    decisionLimitMs: 3_000,
    webhookPolicy: {
      allowInsecure: config.WEBHOOKS_ALLOW_INSECURE,
      allowPrivateAddresses: config.WEBHOOKS_ALLOW_INSECURE,
    },
    webhookKeys: config.WEBHOOK_SIGNING_KEYS.map(readSigningKey),
    fingerprintSecret: config.FINGERPRINT_SECRET,
    keyring,
    limiter: createLimiter({
      perSecond: config.RATE_LIMIT_PER_SECOND,
      burst: config.RATE_LIMIT_BURST,
      inFlight: config.IN_FLIGHT_LIMIT,
      itemsPerSecond: config.ITEM_LIMIT_PER_SECOND,
    }),
    proxies,
  });
  const handle = app.callback();
  // Koa responds to its own failures, so this promise never rejects.
  const onRequest: RequestListener = (request, response) => void handle(request, response);
  const http = createHttpServer(onRequest, log, proxies);
  const url = await listen(http.server, config.API_HOST, config.API_PORT);
  show('rate_age_limit_seconds', {}, config.RATE_MAXIMUM_AGE_HOURS * 3_600);
  const whyUnusable = createReadiness(database, keyring);
  const metricsServer = await serveMetrics({
    host: config.METRICS_HOST,
    port: config.METRICS_PORT,
    registry,
    isReady: watchReadiness(log, async () => (http.isStopping() ? 'stopping' : whyUnusable())),
    refresh: createBacklog(lists, temporal, log),
  });
  // Only logged: payouts are accepted even so, and decided once Temporal accepts the namespace and key.
  void refusalOf(temporal).then((refusal) => refusal && log.error(refusal));
  log.info({ ready: url, metrics: metricsServer.url }, 'the API is ready');
  return {
    stop: async () => {
      const noticeMs = config.STOP_NOTICE_SECONDS * 1000;
      // Requests that wait for events are released only when no new ones can take their place.
      await Promise.all([http.stop(noticeMs), delay(noticeMs).then(feedWaits.close)]);
      metricsServer.close();
      await Promise.all([temporal.connection.close(), tracing?.stop()]);
      await Promise.all([database, lists].map((pool) => pool.end({ timeout: 5 })));
    },
  };
}

/**
 * Creates the readiness check, which returns what is missing: the database must be reachable, migrated, and
 * encrypted under master keys that this process has. Temporal is not checked, because payouts are accepted without it.
 */
function createReadiness(database: Database, keyring: Keyring) {
  return cached(async () => {
    if (!(await isMigrated(database))) return 'the schema lacks migrations of this release';
    const isKnown = await hasMasterKeys(database, keyring);
    return isKnown ? undefined : 'MASTER_KEY lacks a key that is in use';
  }, readinessMs);
}

/** The API process. */
await runProcess('api', async () => {
  const config = readApiConfig(process.env);
  return startApi(config, createLog({ part: 'api', level: config.LOG_LEVEL }));
});
