// One customer, and those who send its single payouts: in a closed loop, or at a rate.
import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { amountMinor } from './batch/customer.mjs';

/** A payout that takes longer than this will never be announced. */
const announcedLimitMs = 60_000;

/** A receiver of webhooks, and what waits for the one of a payout. */
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

/** Sends one payout of the customer; answers it as it is then. */
export function pay(customer, reference) {
  return customer.ask('POST /v1/payouts', {
    beneficiary: customer.beneficiaryId,
    source_currency: 'USD',
    amount: amountMinor,
    reference,
  });
}

/** Does the work so many times, `atOnce` at a time; the milliseconds that each took. */
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
 * Does the work at fixed moments, whether or not what came before is done, and counts from that
 * moment: a caller who waited for slow answers would leave out those that they delay.
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
