// The process of the third way: DBOS Transact with one workflow per payout. It receives the request and
// the bank's callbacks over HTTP, and its steps are the product's activities.
import { DBOS } from '@dbos-inc/dbos-sdk';
import { asyncLocalStorage } from '@temporalio/activity';
import { createDeliverer } from '../../dist/src/activities/delivery.js';
import { ledgerActivities } from '../../dist/src/activities/ledger.js';
import { startRates } from '../../dist/src/activities/maintenance.js';
import { railActivities } from '../../dist/src/activities/submission.js';
import { connectDatabase, transaction } from '../../dist/src/db/client.js';
import { createKeyring } from '../../dist/src/db/personalData.js';
import { storeRailEvents } from '../../dist/src/db/railInbox.js';
import { createRails } from '../../dist/src/rails/registry.js';
import { createSandboxCallbacks } from '../../dist/src/rails/sandbox/callback.js';
import { createSandboxRail } from '../../dist/src/rails/sandbox/connector.js';
import { referenceSource } from '../../dist/src/rates/reference.js';
import { createSender } from '../../dist/src/webhooks/sender.js';
import { insertPending } from './payoutRows.mjs';
import { serve } from './serve.mjs';

const env = process.env;
const database = connectDatabase({
  url: env.DATABASE_URL,
  poolSize: 16,
  applicationName: 'bench-dbos',
});
const rail = createSandboxRail({
  url: env.SANDBOX_BANK_URL,
  apiToken: env.SANDBOX_BANK_TOKEN,
});
const callbacks = createSandboxCallbacks([env.SANDBOX_BANK_CALLBACK_SECRET]);
const keyring = createKeyring([env.MASTER_KEY]);
const deliverer = createDeliverer({
  database,
  keyring,
  sender: createSender({ allowInsecure: true, allowPrivateAddresses: true }),
  // Used only for failed webhooks, which the sink never causes.
  temporal: {},
  log: console,
});
const deps = {
  database,
  rails: createRails([rail]),
  rateMaximumAgeMs: { test: 24 * 60 * 60 * 1_000, live: 0 },
  factRules: { returnMinimumPercent: 90n },
  deliverer,
  keyring,
};
const activities = { ...ledgerActivities(deps), ...railActivities(deps) };

/** The part of Temporal's context that the activities read: a first attempt without a retry policy. */
const context = {
  info: { attempt: 1, isLocal: false },
  heartbeat: () => undefined,
  cancellationSignal: new AbortController().signal,
};

/** Runs one of the product's activities as a step, checkpointed and with as many retries as there. */
function step(name, input) {
  return DBOS.runStep(() => asyncLocalStorage.run(context, () => activities[name](input)), {
    name,
    retriesAllowed: true,
    intervalSeconds: 1,
    maxAttempts: 10,
  });
}

/** The topic of the notification that the bank has reported something about the payout. */
const topic = 'railUpdate';

const payout = DBOS.registerWorkflow(
  async (id) => {
    const mine = { driver: id, ids: [id] };
    let [row] = await step('decidePayouts', { ...mine, workflowAgeMs: 0 });
    if (row.status === 'processing') [row] = await step('submitPayouts', mine);
    while (row.status === 'processing' || row.status === 'sent') {
      await DBOS.recv(topic, 60);
      [row] = await step('applyRailEvents', mine);
    }
  },
  { name: 'payout' },
);

const queueName = 'payouts';

/** Records the payouts and enqueues a workflow for each, as the API does for a request. */
async function takeRequest({ accountId, beneficiaryId, count }) {
  const ids = await insertPending(database, { accountId, beneficiaryId }, count);
  // The system database's pool limits the concurrency to its number of connections.
  await Promise.all(ids.map((id) => DBOS.startWorkflow(payout, { workflowID: id, queueName })(id)));
  return { status: 202 };
}

/** Processes a callback as the API does: stores each fact once, then notifies the waiting workflows. */
async function takeCallback(body, headers) {
  const events = callbacks.parseCallback({
    body,
    header: (name) => headers[name] ?? '',
    receivedAt: new Date(),
  });
  if (events === undefined) return { status: 401 };
  await transaction(database, (sql) => storeRailEvents(sql, rail.name, events));
  const notified = new Set(events.map(({ key }) => key));
  await Promise.all([...notified].map((id) => DBOS.send(id, null, topic)));
  return { status: 200 };
}

await startRates(
  { database, rateSource: referenceSource, log: console },
  deps.rateMaximumAgeMs.test,
);
DBOS.setConfig({
  name: 'bench',
  systemDatabaseUrl: env.DBOS_SYSTEM_DATABASE_URL,
  systemDatabasePoolSize: Number(env.DBOS_POOL_SIZE),
  applicationVersion: 'bench',
  logLevel: 'warn',
});
await DBOS.launch();
await DBOS.registerQueue(queueName, {
  workerConcurrency: Number(env.DBOS_CONCURRENCY),
  // By default a queue is polled once a second, and then filled up.
  minPollingIntervalMs: Number(env.DBOS_POLLING_MS),
});
serve({
  '/payouts': (body) => takeRequest(JSON.parse(body.toString('utf8'))),
  '/rails/sandbox/callbacks': takeCallback,
});
for (const end of ['disconnect', 'SIGTERM']) process.once(end, () => process.exit(0));
