import { setTimeout } from 'node:timers/promises';
import { z } from 'zod';
import type { Call } from './caller.js';
import { line, seconds } from './line.js';
import type { Receiver } from './receiver.js';

const batchShape = z.object({
  id: z.string(),
  status: z.string(),
  counts: z.record(z.string(), z.number()),
  progress: z.object({ final: z.number(), percent: z.number() }),
  totals: z.array(
    z.object({
      source_currency: z.string(),
      destination_currency: z.string(),
      count: z.number(),
      source_amount: z.string(),
      fee: z.string(),
      receive_amount: z.string(),
    }),
  ),
});
type Batch = z.infer<typeof batchShape>;

/** Timeout of the batch: 10,000 payouts take seconds, so a machine that needs longer has a problem. */
const limitMs = 180_000;

/** Poll interval: short enough for a moving bar, but each request counts all of the batch's items. */
const lookPauseMs = 500;

const currencies = ['USD', 'EUR', 'GBP'];

/** Sends a batch of payouts to one beneficiary and shows its progress up to the last webhook. */
export async function sendBatch(
  call: Call,
  receiver: Receiver,
  beneficiary: string,
  count: number,
): Promise<void> {
  const payouts = Array.from({ length: count }, (_, index) => ({
    source_currency: currencies[index % currencies.length],
    amount: 1_000 + (index % 500),
    beneficiary,
    reference: `Invoice ${index + 1}`,
  }));
  const startedMs = performance.now();
  const taken = await call('POST /v1/batches', batchShape, { json: { payouts } });
  line('Batch', `${taken.id}: ${count} payouts accepted after ${seconds(startedMs)}`);
  const settled = await watch(call, receiver, taken.id, startedMs);
  const settledAfter = seconds(startedMs);
  await receiver.next(({ type }) => type === 'batch.completed', limitMs);
  while (receiver.count('payout.settled') < (settled.counts['settled'] ?? 0)) {
    if (performance.now() - startedMs > limitMs) throw new Error('Some webhooks did not arrive.');
    await setTimeout(50);
  }
  const announcedMs = performance.now() - startedMs;
  line('Settled', `after ${settledAfter}; the last webhook after ${seconds(startedMs)}`);
  line('Rate', `${Math.round((count / announcedMs) * 1_000)} payouts/s, webhooks included`);
  line('Webhooks', `${receiver.count('payout.settled')} of payout.settled, signatures verified`);
  for (const total of settled.totals) line('Total', totalText(total));
}

/** Draws the progress bar until no item is open. */
async function watch(
  call: Call,
  receiver: Receiver,
  id: string,
  startedMs: number,
): Promise<Batch> {
  for (;;) {
    const batch = await call(`GET /v1/batches/${id}`, batchShape);
    const { final, percent } = batch.progress;
    const bar = '█'.repeat(Math.round(percent / 5)).padEnd(20, '░');
    const rate = Math.round((final / (performance.now() - startedMs)) * 1_000);
    const counts = Object.entries(batch.counts)
      .filter(([name, value]) => name !== 'total' && value > 0)
      .map(([name, value]) => `${value} ${name}`);
    const text = `${bar} ${percent} %  ${rate}/s  ${counts.join(', ')}, ${receiver.count('payout.settled')} webhooks`;
    // A terminal redraws the bar in place; a file gets a line for each poll.
    if (process.stdout.isTTY) process.stdout.write(`\r\u001b[K${text}`);
    else console.log(text);
    if (batch.status !== 'processing') {
      if (process.stdout.isTTY) process.stdout.write('\n');
      return batch;
    }
    if (performance.now() - startedMs > limitMs) throw new Error(`The batch did not end: ${text}`);
    await setTimeout(lookPauseMs);
  }
}

function totalText(total: Batch['totals'][number]): string {
  const { source_currency: source, destination_currency: destination, count } = total;
  return `${source}-${destination}: ${count} payouts, ${total.source_amount} ${source} with ${total.fee} of fees, give ${total.receive_amount} ${destination}`;
}
