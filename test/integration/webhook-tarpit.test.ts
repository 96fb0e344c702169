import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { eventually } from '../assertions/eventually.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { startTarpit, type Tarpit } from '../fakes/tarpit.js';
import { type BatchPayer, openBatchPayer } from '../fixtures/batchPayer.js';
import { textOf } from '../fixtures/client.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

/** Tolerance for a busy machine: the test looks for waits of 15 s or more. */
const slackMs = 5_000;

const samples = 20;

async function openVictim(): Promise<{ readonly payer: BatchPayer; readonly receiver: Receiver }> {
  const payer = await openBatchPayer(system, 1_000_000n);
  const receiver = await startReceiver();
  onTestFinished(() => receiver.close());
  await listen(payer, receiver.url);
  return { payer, receiver };
}

/** An account whose receiver accepts webhooks and never responds. */
async function openAttacker(): Promise<{ readonly payer: BatchPayer; readonly tarpit: Tarpit }> {
  const payer = await openBatchPayer(system, 1_000_000n);
  const tarpit = await startTarpit();
  onTestFinished(() => tarpit.close());
  await listen(payer, tarpit.url);
  return { payer, tarpit };
}

async function listen(payer: BatchPayer, url: string): Promise<void> {
  const events = ['payout.sent', 'payout.settled'];
  const added = await payer.client('POST /v1/webhook_endpoints', { json: { url, events } });
  expect(added.status).toBe(201);
}

/** Sends payouts one after another; returns the 95th percentile of the time until `payout.settled`. */
async function p95Of(
  { payer, receiver }: Awaited<ReturnType<typeof openVictim>>,
  send: (payer: BatchPayer) => Promise<string>,
): Promise<number> {
  const tookMs: number[] = [];
  for (let sample = 0; sample < samples; sample += 1) {
    const startedMs = performance.now();
    const id = await send(payer);
    await receiver.next(({ body }) => body.includes('payout.settled') && body.includes(id));
    tookMs.push(performance.now() - startedMs);
  }
  return tookMs.toSorted((a, b) => a - b)[Math.ceil(0.95 * samples) - 1] ?? Number.NaN;
}

/** Sends a single payout; returns its ID, which identifies its webhook. */
async function single({ client, item }: BatchPayer): Promise<string> {
  return textOf(await client('POST /v1/payouts', { form: item('Invoice 17') }), 'id');
}

/** Sends a batch of one; returns its ID, which identifies its webhook. */
async function batch({ send, item }: BatchPayer): Promise<string> {
  return send([item('Salary 17')]);
}

it.for([
  { lane: 'a payout', send: single, count: 80 },
  { lane: 'a batch', send: batch, count: 30 },
])(
  'a receiver that never answers does not delay another customer’s webhook of $lane',
  { timeout: 300_000 },
  async ({ send, count }, { annotate }) => {
    const victim = await openVictim();
    const idleMs = await p95Of(victim, send);
    // With more, a wait of 15 s would be within the limit below.
    expect(idleMs).toBeLessThan(slackMs);
    const { payer, tarpit } = await openAttacker();
    await Promise.all(Array.from({ length: count }, () => send(payer)));
    // Waits first, to measure the effect of the slow receiver and not the cost of settling the payouts.
    await eventually('all payouts of the attacker are settled', 120_000, async () => {
      const [row] = await system.database<{ open: number }[]>`
        select count(*)::int as open from payouts
         where account_id = ${payer.accountId} and status <> 'settled'`;
      return row?.open === 0 && tarpit.held() >= 4 ? true : undefined;
    });

    const attackedMs = await p95Of(victim, send);
    await annotate(`p95 ${Math.round(idleMs)} ms idle, ${Math.round(attackedMs)} ms attacked`);
    expect(tarpit.held()).toBeGreaterThan(0);
    expect(attackedMs).toBeLessThan(2 * idleMs + slackMs);
  },
);
