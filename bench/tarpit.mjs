// Measures how a receiver that hangs delays the webhooks of another account; see README.md.
import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { withBench } from './batch/bench.mjs';
import { openCustomer } from './batch/customer.mjs';
import { watchProcesses } from './batch/processes.mjs';
import { describeMachine, heading, percentile } from './batch/report.mjs';
import { closedLoop, pay, startReceiver } from './payers.mjs';

const { values } = parseArgs({
  options: {
    samples: { type: 'string', default: '60' },
    rounds: { type: 'string', default: '2' },
    'a-second': { type: 'string', default: '4' },
    data: { type: 'string', default: '.corridor/bench' },
  },
});
const samples = Number(values.samples);
const rounds = Number(values.rounds);
const pauseMs = 1_000 / Number(values['a-second']);
/** Funds for more payouts of the neighbor than all rounds have time for. */
const mostPayouts = 20_000;

/** Starts a receiver that answers either at once or never. */
async function startMoody() {
  let hangs = false;
  const held = new Set();
  const server = createServer((request, response) => {
    request.resume();
    if (!hangs) return response.writeHead(200).end();
    held.add(response);
    response.on('close', () => held.delete(response));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    hang: (next) => {
      hangs = next;
    },
    held: () => held.size,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Creates a customer with `endpoints` webhook endpoints at a receiver that may hang. */
async function openNeighbor(bench, endpoints) {
  const receiver = await startMoody();
  const customer = await openCustomer(
    { ...bench, sinkUrl: receiver.url },
    `neighbor-${endpoints}`,
    mostPayouts,
  );
  for (let number = 2; number <= endpoints; number += 1) {
    const url = `${receiver.url}/${number}`;
    await customer.request('POST /v1/webhook_endpoints', { url, events: ['payout.settled'] });
  }
  return { receiver, customer, endpoints };
}

/** Sends the neighbor's payouts at a rate that a hanging receiver does not slow, until the work is done. */
async function whilePaying({ customer }, work) {
  const ended = new AbortController();
  const paying = (async () => {
    while (!ended.signal.aborted) {
      const paused = delay(pauseMs);
      await pay(customer, 'Salary');
      await paused;
    }
  })();
  const result = await work();
  ended.abort();
  await paying;
  return result;
}

/** Measures the milliseconds from each of the customer's requests to its webhook, sequentially. */
function timesOf({ customer, receiver }) {
  return closedLoop(samples, 1, async (number) => {
    const { id } = await pay(customer, `Invoice ${number}`);
    await receiver.untilAnnounced(id);
  });
}

const machine = describeMachine();
const lines = await withBench(values.data, async (bench) => {
  const receiver = await startReceiver();
  const customer = await openCustomer(
    { ...bench, sinkUrl: receiver.url },
    'victim',
    samples * (4 * rounds + 1),
  );
  const victim = { receiver, customer };
  const neighbors = [await openNeighbor(bench, 1), await openNeighbor(bench, 16)];
  await timesOf(victim);
  const shown = [];
  for (let round = 0; round < rounds * neighbors.length; round += 1) {
    const neighbor = neighbors[round % neighbors.length];
    const measure = async (hangs) => {
      neighbor.receiver.hang(hangs);
      const processes = watchProcesses({ worker: bench.stack.description.pids.worker });
      const times = await whilePaying(neighbor, () => timesOf(victim));
      return { p95Ms: percentile(times, 0.95), peakMb: processes.peaksMb().worker };
    };
    const well = await measure(false);
    const hanging = await measure(true);
    shown.push(
      [
        `${neighbor.endpoints} endpoints: p95 ${well.p95Ms.toFixed(0)} ms beside a receiver that is well`,
        `${hanging.p95Ms.toFixed(0)} ms beside one that hangs (${(hanging.p95Ms / well.p95Ms).toFixed(2)} times)`,
        `${neighbor.receiver.held()} requests held`,
        `the worker's peak ${well.peakMb.toFixed(0)} and ${hanging.peakMb.toFixed(0)} MB`,
      ].join(', '),
    );
  }
  receiver.close();
  for (const neighbor of neighbors) neighbor.receiver.close();
  return shown;
});
console.log([heading(machine), ...lines].join('\n'));
