// Sends a customer's single payouts in a closed loop or at a constant rate.
import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { amountMinor } from './batch/customer.mjs';

/** Timeout for a payout's webhook. */
const announcedLimitMs = 60_000;

/** Starts a webhook receiver. `untilAnnounced` waits for a payout's webhook. */
export async function startReceiver() {
  const announced = new Set();
  const waiting = new Map();
  const server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const { data } = JSON.parse(Buffer.concat(parts).toString('utf8'));
      announced.add(data.id);
      waiting.get(data.id)?.();
      response.writeHead(200).end();
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    close: () => server.close(),
    untilAnnounced: (id) =>
      new Promise((resolve, reject) => {
        const late = () => reject(new Error(`${id} is not announced.`));
        const timer = setTimeout(late, announcedLimitMs);
        const come = () => {
          clearTimeout(timer);
          resolve();
        };
        if (announced.has(id)) come();
        else waiting.set(id, come);
      }),
  };
}

/** Creates a payout of the customer and returns the response. */
export function pay(customer, reference) {
  return customer.request('POST /v1/payouts', {
    beneficiary: customer.beneficiaryId,
    source_currency: 'USD',
    amount: amountMinor,
    reference,
  });
}

/** Runs the work `count` times, `atOnce` at a time. Returns the milliseconds that each run took. */
export async function closedLoop(count, atOnce, work) {
  const times = [];
  let begun = 0;
  const lane = async () => {
    while (begun < count) {
      begun += 1;
      const startMs = performance.now();
      await work(begun);
      times.push(performance.now() - startMs);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  return times;
}

/**
 * Starts the work at a constant rate, even if earlier runs have not finished, and measures from the
 * scheduled time. Waiting for slow responses would hide the delays they cause (coordinated omission).
 */
export async function openLoop(count, aSecond, work) {
  const done = [];
  const startMs = performance.now();
  for (let index = 0; index < count; index += 1) {
    const atMs = startMs + (index * 1_000) / aSecond;
    await delay(Math.max(0, atMs - performance.now()));
    done.push(
      work(index).then((result) => ({ ...result, startMs: atMs, ms: performance.now() - atMs })),
    );
  }
  return Promise.all(done);
}
