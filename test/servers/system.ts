import { once } from 'node:events';
import { createServer } from 'node:http';
import { Client, Connection } from '@temporalio/client';
import { NativeConnection } from '@temporalio/worker';
import type Koa from 'koa';
import { pino } from 'pino';
import { createDeliverer } from '../../src/activities/delivery.js';
import { createActivities } from '../../src/activities/index.js';
import { createApp } from '../../src/api/app.js';
import { trustProxies } from '../../src/api/clientAddress.js';
import { createDecisionWaits } from '../../src/api/decisionWaits.js';
import { createFeedWaits } from '../../src/api/feedWaits.js';
import { createLimiter, type Limiter } from '../../src/api/rateLimit.js';
import { connectDatabase, type Database } from '../../src/db/client.js';
import type { Keyring } from '../../src/db/personalData.js';
import type { DatabaseUrls } from '../../src/db/roles.js';
import { createRails } from '../../src/rails/registry.js';
import { createSandboxCallbacks } from '../../src/rails/sandbox/callback.js';
import { createSandboxRail } from '../../src/rails/sandbox/connector.js';
import { referenceSource } from '../../src/rates/reference.js';
import { ensureSearchAttributes } from '../../src/temporal/searchAttributes.js';
import type { UrlPolicy } from '../../src/webhooks/guard.js';
import { createSender, type Sender } from '../../src/webhooks/sender.js';
import { createSigner } from '../../src/webhooks/signature.js';
import { createBatchLane, createSingleLane } from '../../src/worker/workers.js';
import { type ApiClient, createClient } from '../fixtures/client.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { keyring as usualKeyring } from '../fixtures/keyring.js';
import { webhookKeys } from '../fixtures/webhookKeys.js';
import { startTestBank, type TestBank } from './bank.js';
import { createTestAccount, createTestDatabase, type TestAccount } from './database.js';
import { temporalAddress } from './temporalAddress.js';
import { quietRuntime, workflowsInThisThread } from './workflowBundle.js';

/** Corridor with real parts: the API and the worker in this process, the rest in separate processes. */
export type TestSystem = {
  readonly apiUrl: string;
  readonly databaseUrl: string;
  /** The URLs of the processes' own logins. */
  readonly urls: DatabaseUrls;
  readonly app: Koa;
  /** Connected as the owner; the API and the workers have separate logins. */
  readonly database: Database;
  /** Connected as a worker, for activities that a test calls directly. */
  readonly worker: Database;
  readonly temporal: Client;
  readonly decisionLimitMs: number;
  readonly bank: TestBank;
  readonly account: TestAccount;
  /** Sends requests as the system's account. */
  readonly client: ApiClient;
  /** Starts the workers of both lanes, or of one. By default the system starts with both. */
  readonly startWorker: (lane?: 'single' | 'batch') => Promise<void>;
  readonly stopWorker: () => Promise<void>;
  readonly stop: () => Promise<void>;
};

const policy = { allowInsecure: true, allowPrivateAddresses: true };
export const fingerprintSecret = 'test-fingerprint-secret';
const hourMs = 60 * 60 * 1000;
const dayMs = 24 * hourMs;
/** Limits above what any test sends, except tests of the limits. */
const unlimited = () =>
  createLimiter({
    ...{ perSecond: 10_000, burst: 10_000, inFlight: 10_000, itemsPerSecond: 10_000_000 },
  });

export async function startSystem(
  options: {
    readonly startsWorker?: boolean;
    /**
     * How long the API waits for a decision. With a worker, nearly as long as the client waits, so that
     * the decision arrives even on a busy machine; without one the answer is always `pending`.
     */
    readonly decisionLimitMs?: number;
    readonly limiter?: Limiter;
    readonly keyring?: Keyring;
    /** Decides which webhook URLs count as external and need proof of ownership. */
    readonly webhookPolicy?: UrlPolicy;
    /** Replaces the default sender, which may reach loopback and has a 15 s timeout. */
    readonly sender?: Sender;
  } = {},
): Promise<TestSystem> {
  const { keyring = usualKeyring, startsWorker = true } = options;
  const { decisionLimitMs = startsWorker ? 20_000 : 1_000 } = options;
  quietRuntime();
  const { url: databaseUrl, database, api, worker, urls, drop } = await createTestDatabase();
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const apiUrl = `http://127.0.0.1:${port}`;
  const bank = await startTestBank(`${apiUrl}/rails/sandbox/callbacks`);
  const connection = await Connection.connect({ address: temporalAddress() });
  const temporal = new Client({ connection });
  await ensureSearchAttributes(connection, temporal);
  const rail = createSandboxRail(bank);
  const rails = createRails([rail]);
  const log = pino({ level: 'silent' });
  const lists = connectDatabase({
    url: urls.api,
    poolSize: 8,
    statementTimeoutMs: 1_000,
    applicationName: 'test-lists',
  });
  const app = createApp({
    database: api,
    lists,
    feedWaits: createFeedWaits(api),
    decisionWaits: createDecisionWaits(api, log),
    temporal,
    rails: createRails([createSandboxCallbacks([bank.callbackSecret])]),
    log,
    rateMaximumAgeMs: { test: dayMs, live: hourMs },
    decisionLimitMs,
    webhookPolicy: options.webhookPolicy ?? policy,
    webhookKeys,
    fingerprintSecret,
    keyring,
    limiter: options.limiter ?? unlimited(),
    proxies: trustProxies([]),
  });
  const handle = app.callback();
  server.on('request', (request, response) => void handle(request, response));

  const sender = options.sender ?? createSender(policy, {}, createSigner(webhookKeys[0]));
  const native = await NativeConnection.connect({ address: temporalAddress() });
  let stopWorker = async () => {};
  const startWorker = async (only?: 'single' | 'batch') => {
    const deliverer = createDeliverer({ database: worker, sender, temporal, keyring, log });
    const activities = createActivities({
      database: worker,
      rails,
      keyring,
      rateMaximumAgeMs: { test: dayMs, live: hourMs },
      factRules: usualFactRules,
      deliverer,
      sender,
      approvalAboveMinor: 1_000_000n,
      temporal,
      rateSource: referenceSource,
      log,
    });
    const lane = {
      connection: native,
      namespace: 'default',
      activities,
      workflows: await workflowsInThisThread(),
      poolSize: 8,
    };
    const workers = [
      ...(only === 'batch' ? [] : await createSingleLane(lane)),
      ...(only === 'single' ? [] : await createBatchLane(lane)),
    ];
    const running = workers.map((worker) => worker.run());
    const stopOthers = stopWorker;
    stopWorker = async () => {
      for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
      await Promise.all([...running, stopOthers()]);
      await deliverer.close();
      stopWorker = async () => {};
    };
  };
  if (startsWorker) await startWorker();
  const account = await createTestAccount(database);
  return {
    apiUrl,
    databaseUrl,
    urls,
    app,
    database,
    worker,
    temporal,
    decisionLimitMs,
    bank,
    account,
    client: createClient(apiUrl, account.apiKey),
    startWorker,
    stopWorker: () => stopWorker(),
    stop: async () => {
      await stopWorker();
      server.closeAllConnections();
      server.close();
      await bank.stop();
      await Promise.all([sender.close(), rail.close(), native.close(), connection.close()]);
      await lists.end({ timeout: 5 });
      await drop();
    },
  };
}
