import { once } from 'node:events';
import { createServer } from 'node:http';
import { pino } from 'pino';
import { createApp } from '../../src/api/app.js';
import { trustProxies } from '../../src/api/clientAddress.js';
import { createDecisionWaits } from '../../src/api/decisionWaits.js';
import { createFeedWaits } from '../../src/api/feedWaits.js';
import { createLimiter } from '../../src/api/rateLimit.js';
import { connectDatabase } from '../../src/db/client.js';
import { createRails } from '../../src/rails/registry.js';
import { keyring as usualKeyring } from '../fixtures/keyring.js';
import { webhookKeys as usualWebhookKeys } from '../fixtures/webhookKeys.js';
import { fingerprintSecret, type TestSystem } from './system.js';

/** Starts a second API with its own server and connections, on the same database. */
export async function startSecondApi(
  { urls, temporal, decisionLimitMs }: TestSystem,
  keyring = usualKeyring,
  webhookKeys = usualWebhookKeys,
) {
  const log = pino({ level: 'silent' });
  const database = connectDatabase({ url: urls.api, poolSize: 10, applicationName: 'second' });
  const app = createApp({
    database,
    lists: database,
    feedWaits: createFeedWaits(database),
    decisionWaits: createDecisionWaits(database, log),
    temporal,
    // No rails: this API receives no bank callbacks.
    rails: createRails([]),
    log,
    rateMaximumAgeMs: { test: 24 * 60 * 60 * 1000, live: 60 * 60 * 1000 },
    decisionLimitMs,
    webhookPolicy: { allowInsecure: true, allowPrivateAddresses: true },
    webhookKeys,
    fingerprintSecret,
    keyring,
    limiter: createLimiter({
      ...{ perSecond: 10_000, burst: 10_000, inFlight: 10_000, itemsPerSecond: 10_000_000 },
    }),
    proxies: trustProxies([]),
  });
  const handle = app.callback();
  const server = createServer((request, response) => void handle(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return {
    url: `http://127.0.0.1:${port}`,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await database.end({ timeout: 5 });
    },
  };
}
