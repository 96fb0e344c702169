// Delivers 10,000 events to one endpoint, singly and in batches by turns; see README.md.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { createDeliverer } from '../dist/src/activities/delivery.js';
import { connectDatabase } from '../dist/src/db/client.js';
import { recordWebhookEvents } from '../dist/src/db/events.js';
import { createKeyring } from '../dist/src/db/personalData.js';
import { createSender } from '../dist/src/webhooks/sender.js';
import { withBench } from './batch/bench.mjs';
import { openCustomer } from './batch/customer.mjs';
import { startScript, watchProcesses } from './batch/processes.mjs';
import { describeMachine, heading, percentile } from './batch/report.mjs';
import { pay } from './payers.mjs';

const { values } = parseArgs({
  options: {
    events: { type: 'string', default: '10000' },
    rounds: { type: 'string', default: '5' },
    data: { type: 'string', default: '.corridor/bench' },
  },
});
const [events, rounds] = [Number(values.events), Number(values.rounds)];

const facts = { status: 'canceled', statusReason: null, settledAt: null, returnedMinor: null };

/** Creates a customer with an endpoint for the events written here, and a payout as their subject. */
async function openListener(bench, url, batching) {
  const name = batching ? 'batched' : 'single';
  const customer = await openCustomer(bench, name, 1);
  const listening = { url: `${url}/${name}`, events: ['payout.canceled'], batching };
  const { id: endpointId } = await customer.request('POST /v1/webhook_endpoints', listening);
  return { name, endpointId, accountId: customer.accountId, payout: await pay(customer, name) };
}

/** Writes the events as a worker does, with a later attempt time so that no sweep delivers them. */
async function record({ database }, { accountId, endpointId, payout }) {
  const event = { accountId, type: 'payout.canceled', subjectId: payout.id, facts };
  await recordWebhookEvents(database, Array(events).fill(event));
  await database`
    update deliveries set next_attempt_at = now() + interval '10 minutes'
     where endpoint_id = ${endpointId} and status = 'pending'`;
}

/** Poll interval: polling ten times a second adds one hundredth of the measured load. */
const pollIntervalMs = 100;

/** Timeout: longer than the first retry of a failed delivery. A longer run is not a valid measurement. */
const limitMs = 60_000;

/** Waits until no event of the listener is pending. */
async function untilDelivered({ database }, { name, endpointId }) {
  const deadlineMs = Date.now() + limitMs;
  for (;;) {
    const [{ count }] = await database`
      select count(*)::int from deliveries
       where endpoint_id = ${endpointId} and status = 'pending'`;
    if (count === 0) return;
    if (Date.now() > deadlineMs) throw new Error(`${name}: ${count} events are not delivered.`);
    await delay(pollIntervalMs);
  }
}

/**
 * Measures the cost for the workers until each event is delivered and recorded: this process, which has
 * committed the events, and the stack's worker, which delivers what this one has no time for.
 */
async function deliver(bench, deliverer, listener, receiver) {
  await record(bench, listener);
  const { postgres, worker } = bench.stack.description.pids;
  const processes = watchProcesses({ postgres, worker, receiver: receiver.pid });
  const before = process.cpuUsage();
  const startMs = performance.now();
  // Two payouts count as a group, which has 20 s; a single payout's events have four.
  await deliverer.deliver([listener.payout.id, 'po_none']);
  await untilDelivered(bench, listener);
  const ms = performance.now() - startMs;
  const { user, system } = process.cpuUsage(before);
  const spent = processes.msAPayout(1);
  return { ...spent, ms, worker: spent.worker + (user + system) / 1_000 };
}

const machine = describeMachine();

const taken = await withBench(values.data, async (bench) => {
  const { masterKey } = JSON.parse(await readFile(join(bench.directory, 'secrets.json'), 'utf8'));
  const receiver = await startScript({
    ...{ name: 'receiver', script: '../webhookReceiver.mjs', directory: bench.directory },
  });
  const database = connectDatabase({
    ...{ url: bench.stack.description.database_url, poolSize: 8, applicationName: 'bench-worker' },
  });
  const sender = createSender({ allowInsecure: true, allowPrivateAddresses: true });
  const { temporal } = bench;
  const keyring = createKeyring([masterKey]);
  const deliverer = createDeliverer({ database, sender, temporal, keyring, log: console });
  try {
    const listeners = [];
    for (const batching of [false, true]) {
      listeners.push(await openListener(bench, receiver.announced, batching));
    }
    const figures = { single: [], batched: [] };
    for (let round = 0; round <= rounds; round += 1) {
      for (const listener of listeners) {
        const figure = await deliver(bench, deliverer, listener, receiver);
        figures[listener.name].push(figure);
      }
    }
    const seen = await (await fetch(receiver.announced)).json();
    return { figures, seen };
  } finally {
    await deliverer.close();
    await sender.close();
    await database.end({ timeout: 5 });
    await receiver.stop();
  }
});

const { figures, seen } = taken;
for (const [name, { events: count }] of Object.entries(seen)) {
  if (count !== events * (rounds + 1)) throw new Error(`${name}: ${count} events arrived.`);
}
const medianOf = (name, figure) =>
  percentile(
    // Without the first round, which was the warm-up.
    figures[name].slice(1).map((one) => one[figure]),
    0.5,
  );
const rows = Object.entries({
  'ms in all': 'ms',
  'ms of the workers’ processor': 'worker',
  'ms of PostgreSQL’s': 'postgres',
  'ms of the receiver’s': 'receiver',
}).map(([label, figure]) => {
  const [single, batched] = [medianOf('single', figure), medianOf('batched', figure)];
  return `${label}: ${single.toFixed(0)} single, ${batched.toFixed(0)} batched, ratio ${(single / batched).toFixed(1)}`;
});
const requests = ({ requests: count }) => (count / (rounds + 1)).toFixed(0);
const title = `${events} events, medians of ${rounds} rounds; requests ${requests(seen['/single'])} and ${requests(seen['/batched'])}`;
console.log([heading(machine), title, ...rows].join('\n'));
