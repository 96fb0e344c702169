import { readFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Client } from '@temporalio/client';
import { DefaultLogger, NativeConnection, Runtime } from '@temporalio/worker';
import type { Logger } from 'pino';
import { createDeliverer } from '../activities/delivery.js';
import { createActivities } from '../activities/index.js';
import { startRates, sweepIfLate } from '../activities/maintenance.js';
import { ConfigError, rateAgesOf, readWorkerConfig, type WorkerConfig } from '../config.js';
import { hasMasterKeys } from '../db/accountKeys.js';
import { connectDatabase, type Database } from '../db/client.js';
import { createKeyring, type Keyring } from '../db/personalData.js';
import { createLog } from '../log.js';
import { createRegistry } from '../metrics.js';
import { freeAddress, serveMetrics, watchReadiness } from '../metricsServer.js';
import { type Running, runProcess, tracingOf } from '../process.js';
import { metered } from '../rails/metered.js';
import { createRails } from '../rails/registry.js';
import { createSandboxRail } from '../rails/sandbox/connector.js';
import { ecbSource } from '../rates/ecb.js';
import { referenceSource } from '../rates/reference.js';
import { tableSource } from '../rates/table.js';
import { dataConverterOf, refusalOf } from '../temporal/client.js';
import { connectionOptions } from '../temporal/connection.js';
import { upsertSchedules } from '../temporal/schedules.js';
import { ensureSearchAttributes } from '../temporal/searchAttributes.js';
import type { Tracing } from '../tracing.js';
import { createSender, type Sender } from '../webhooks/sender.js';
import { createSigner, readSigningKey } from '../webhooks/signature.js';
import { lowerPriority } from './priority.js';
import { createBatchLane, createSingleLane } from './workers.js';

/** Timeout of reading the SDK's metrics, served by this process. After it, only our own are shown. */
const metricsLimitMs = 1_000;

const centsPerEuro = 100n;

async function startWorker(lane: Lane, config: WorkerConfig, log: Logger): Promise<Running> {
  // Created before anything that is measured.
  const registry = await createRegistry(`worker-${lane}`);
  const temporalMetrics = await installRuntime(log, `worker-${lane}`);
  const database = connectDatabase({
    url: config.DATABASE_URL,
    poolSize: Math.min(config.DATABASE_POOL_SIZE, mostConnections[lane]),
    // A local activity's attempt ends after 2 s: its transaction must not wait for locks any longer.
    // Chunks have time to wait for each other.
    lockTimeoutMs: lane === 'single' ? 1_500 : 5_000,
    keepsPlans: true,
    applicationName: `corridor-worker-${lane}`,
  });
  const rateSource = rateSources[config.RATE_SOURCE](config);
  const rateMaximumAgeMs = rateAgesOf(config);
  await startRates({ database, rateSource, log }, Math.max(...Object.values(rateMaximumAgeMs)));

  const tracing = await tracingOf(`worker-${lane}`, config, log);
  const { connection, temporal, dataConverter, bundle } = await reachTemporal(config, tracing);
  const rail = createSandboxRail(bankSettings(config));
  const sender = senderOf(config);
  const keyring = await loadKeyring(database, config);
  const deliverer = createDeliverer({ database, sender, temporal, keyring, log });
  const activities = createActivities({
    database,
    rails: createRails([metered(rail)]),
    keyring,
    rateMaximumAgeMs,
    ...{ deliverer, sender },
    temporal,
    approvalAboveMinor: config.OPERATOR_APPROVAL_ABOVE_EUR * centsPerEuro,
    factRules: { returnMinimumPercent: config.RETURN_MINIMUM_PERCENT },
    rateSource,
    log,
  });
  const createLane = lane === 'single' ? createSingleLane : createBatchLane;
  const workers = await createLane({
    connection,
    namespace: config.TEMPORAL_NAMESPACE,
    activities,
    dataConverter,
    ...(tracing && { plugins: tracing.plugins }),
    workflows: { workflowBundle: { code: await readFile(bundle, 'utf8') } },
    buildId: config.TEMPORAL_WORKER_BUILD_ID,
    poolSize: config.DATABASE_POOL_SIZE,
  });
  const running = workers.map((worker) => worker.run());
  await ensureSearchAttributes(connection, temporal);
  if (lane === 'single') await upsertSchedules(temporal);
  const sweeps = lane === 'single' ? watchSweeps({ database, temporal, log }) : undefined;

  const server = await serveMetrics({
    host: config.METRICS_HOST,
    port: config.METRICS_PORT,
    ...{ registry, others: temporalMetrics },
    isReady: watchReadiness(log, async () =>
      workers.map((worker) => worker.getState()).find((state) => state !== 'RUNNING'),
    ),
  });
  // Single payouts come first if both lanes share a machine. The priority is lowered only after
  // start-up, which would otherwise take a minute while the processors are busy.
  if (lane === 'batch') lowerPriority();
  log.info({ ready: server.url }, 'the worker is ready');

  return {
    // A worker that stops by itself without an error also fails.
    broken: Promise.race(running).then(() => {
      throw new Error('A worker has stopped unexpectedly.');
    }),
    // Workers stop first, because they use everything else; the database closes last.
    stop: async () => {
      for (const worker of workers) worker.shutdown();
      await Promise.allSettled([...running, deliverer.close(), sweeps?.stop()]);
      // A second time, to release to other workers the deliveries that the last steps have begun.
      await deliverer.close();
      server.close();
      await Promise.all([sender.close(), rail.close(), connection.close(), tracing?.stop()]);
      await database.end({ timeout: 5 });
    },
  };
}

/** Creates the sender of webhooks, which signs them with the first of the keys. */
function senderOf({ WEBHOOKS_ALLOW_INSECURE: isAllowed, ...config }: WorkerConfig): Sender {
  const policy = { allowInsecure: isAllowed, allowPrivateAddresses: isAllowed };
  const [signingKey] = config.WEBHOOK_SIGNING_KEYS.map(readSigningKey);
  const { WEBHOOK_PROXY_URL: proxyUrl } = config;
  return createSender(policy, { proxyUrl }, createSigner(signingKey));
}

/** Pause between two checks of the sweep: the interval of its schedule. */
const watchIntervalMs = 5_000;

/** Checks that the schedule sweeps, and sweeps itself when the schedule is late. */
function watchSweeps(deps: Parameters<typeof sweepIfLate>[0]) {
  const stopped = new AbortController();
  const watch = async () => {
    while (!stopped.signal.aborted) {
      await delay(watchIntervalMs, undefined, { signal: stopped.signal }).catch(() => undefined);
      if (stopped.signal.aborted) return;
      await sweepIfLate(deps).catch((err: unknown) => deps.log.warn({ err }, 'could not sweep'));
    }
  };
  const watching = watch();
  return {
    stop: () => {
      stopped.abort();
      return watching;
    },
  };
}

/** The settings of the bank's connector: its default limits, unless a rehearsal shortens them. */
function bankSettings(config: WorkerConfig) {
  const { SANDBOX_KEY_RETENTION_SECONDS: retention, SANDBOX_SETTLE_WITHIN_SECONDS: settle } =
    config;
  return {
    url: config.SANDBOX_BANK_URL,
    apiToken: config.SANDBOX_BANK_TOKEN,
    limits: {
      ...(retention === undefined ? {} : { keyRetentionMs: retention * 1_000 }),
      ...(settle === undefined ? {} : { settleWithinMs: settle * 1_000 }),
    },
  };
}

/** Connects, and picks the bundle (see bundle.ts) that matches the settings of encryption and tracing. */
async function reachTemporal(config: WorkerConfig, tracing: Tracing | undefined) {
  const connection = await NativeConnection.connect(connectionOptions(config));
  const dataConverter = dataConverterOf(config);
  const namespace = config.TEMPORAL_NAMESPACE;
  const temporal = new Client({
    ...{ connection, namespace, dataConverter },
    plugins: tracing?.plugins ?? [],
  });
  const refusal = await refusalOf(temporal);
  if (refusal !== undefined) throw new ConfigError(refusal);
  const fileOf = (name: string) => fileURLToPath(new URL(`../${name}`, import.meta.url));
  const isEncrypted = dataConverter.payloadCodecs.length > 0;
  const failureConverterPath = fileOf('temporal/failureConverter.js');
  const name = `${tracing ? 'traced-' : ''}${isEncrypted ? 'encrypted-' : ''}bundle`;
  return {
    ...{ connection, temporal, bundle: fileOf(`workflows/${name}.js`) },
    dataConverter: { ...dataConverter, ...(isEncrypted && { failureConverterPath }) },
  };
}

/** The source for each value of RATE_SOURCE. */
const rateSources = {
  reference: () => referenceSource,
  ecb: ({ RATE_SOURCE_URL: url }: WorkerConfig) => ecbSource(url),
  table: (config: WorkerConfig) => tableSource(config.RATE_TABLE_URL, config.RATE_TABLE_PUBLIC_KEY),
};

/** Fails if a key in use is missing: payouts would be started that could not be sent. */
async function loadKeyring(database: Database, config: WorkerConfig): Promise<Keyring> {
  const keyring = createKeyring(config.MASTER_KEY);
  if (await hasMasterKeys(database, keyring)) return keyring;
  throw new ConfigError('MASTER_KEY: expected every key that wraps the key of an account');
}

/**
 * Maximum database connections of each lane. Transactions of chunks each lock their account's balance
 * for a moment: more at once would not finish sooner, and single payouts would queue behind them all.
 */
const mostConnections = { single: Number.POSITIVE_INFINITY, batch: 4 } as const;

/**
 * Sends the SDK's logs and metrics the same way as ours. The SDK serves its metrics at an address that
 * only this machine can reach, from which the returned function reads them.
 */
async function installRuntime(log: Logger, part: string): Promise<() => Promise<string>> {
  const bindAddress = await freeAddress();
  const names = { countersTotalSuffix: true, unitSuffix: true, useSecondsForDurations: true };
  Runtime.install({
    telemetryOptions: {
      metrics: { globalTags: { part }, prometheus: { bindAddress, ...names } },
    },
    logger: new DefaultLogger('WARN', ({ level, message, meta }) => {
      const { error, ...rest } = meta ?? {};
      log[level === 'WARN' ? 'warn' : 'error']({ ...rest, err: error }, message);
    }),
    // We stop the workers ourselves, in our order.
    shutdownSignals: [],
  });
  return async () => {
    const signal = AbortSignal.timeout(metricsLimitMs);
    return (await fetch(`http://${bindAddress}/metrics`, { signal })).text();
  };
}

type Lane = 'single' | 'batch';

/** With `--lane batch` a worker processes batches; by default, single payouts and schedules. */
function readLane(args: string[]): Lane {
  const { values } = parseArgs({ args, options: { lane: { type: 'string', default: 'single' } } });
  if (values.lane === 'single' || values.lane === 'batch') return values.lane;
  throw new ConfigError(`--lane: expected single or batch, not ${values.lane}`);
}

await runProcess('worker', async () => {
  const lane = readLane(process.argv.slice(2));
  const config = readWorkerConfig(process.env);
  const log = createLog({ part: `worker-${lane}`, level: config.LOG_LEVEL });
  return startWorker(lane, config, log);
});
