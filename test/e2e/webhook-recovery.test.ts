import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { eventually } from '../assertions/eventually.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { startTarpit } from '../fakes/tarpit.js';
import { createClient, textOf } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount } from '../servers/database.js';
import { type PartName, type Processes, startProcesses } from '../servers/processes.js';

/**
 * From the death of a worker on, where another one is there in time. What is promised is 30 s; the
 * rest is for a machine that has much to do.
 */
const recoveryLimitMs = 40_000;

/** There a new worker may take as long by itself: then so long after it. */
const afterStartMs = 15_000;

const payouts = 10;

let parts: Processes;

beforeAll(async () => {
  parts = await startProcesses();
});
afterAll(() => parts?.remove());
// A test that failed half-way must not make the next one fail.
beforeEach(() => parts.startAll());

/** An account whose receiver hears of settled payouts. */
async function openCaller(url: string) {
  const { account, apiKey } = await createTestAccount(parts.database);
  const client = createClient(parts.apiUrl, apiKey);
  const events = ['payout.settled'];
  await client('POST /v1/webhook_endpoints', { json: { url, events } });
  const payee = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  const item = { source_currency: 'USD', amount: '2000', beneficiary: payee };
  return {
    accountId: account.id,
    pay: () =>
      Promise.all(
        Array.from({ length: payouts }, () => client('POST /v1/payouts', { form: item })),
      ),
    payAsBatch: () =>
      client('POST /v1/batches', {
        json: { payouts: Array.from({ length: payouts }, () => item) },
      }),
  };
}

/** A receiver that answers nothing until it is repaired, and what had come until then. */
async function openHangingReceiver(): Promise<Receiver & { readonly repair: () => void }> {
  let isRepaired = false;
  const receiver = await startReceiver((answer) => {
    if (isRepaired) answer();
  });
  onTestFinished(() => receiver.close());
  return {
    ...receiver,
    repair: () => {
      isRepaired = true;
    },
  };
}

async function untilAsked(receiver: Receiver, count: number): Promise<void> {
  await eventually(`${count} webhooks`, 60_000, () =>
    receiver.received.length >= count ? true : undefined,
  );
}

type Owed = { readonly eventId: string; readonly endpointId: string; readonly status: string };

/** What an account was owed as its worker died, but for what had just failed for the second time. */
function underWay(accountId: string): Promise<readonly Owed[]> {
  return parts.database<Owed[]>`
    select d.event_id, d.endpoint_id, d.status
      from deliveries d join events e on e.id = d.event_id
     where e.account_id = ${accountId} and d.status = 'pending' and d.attempts > 0
       and d.next_attempt_at < now() + interval '1 minute'`;
}

async function untilDelivered(owed: readonly Owed[], limitMs: number): Promise<void> {
  let left: readonly object[] = [];
  await eventually('all is delivered', limitMs, async () => {
    left = await parts.database`
      select * from deliveries where status <> 'delivered'
         and event_id = any (${owed.map(({ eventId }) => eventId)})`;
    return left.length === 0 ? true : undefined;
  }).catch((error: unknown) => {
    throw new Error(`Still owed: ${JSON.stringify(left)}`, { cause: error });
  });
}

const killed: readonly { readonly part: PartName; readonly how: 'pay' | 'payAsBatch' }[] = [
  { part: 'worker', how: 'pay' },
  { part: 'batch-worker', how: 'payAsBatch' },
];
it.for(killed)(
  'what a $part that is killed had under way is sent again soon, a tarpit beside it or not',
  { timeout: 300_000 },
  async ({ part, how }, { annotate }) => {
    const tarpit = await startTarpit();
    onTestFinished(() => tarpit.close());
    await (await openCaller(tarpit.url))[how]();
    await eventually('the tarpit is asked', 60_000, () => (tarpit.held() > 0 ? true : undefined));

    // One hangs with its first attempts, the other one with the second, five seconds later.
    const [first, second] = [await openHangingReceiver(), await openHangingReceiver()] as const;
    const failing = await startReceiver();
    onTestFinished(() => failing.close());
    failing.answerWith(500);
    const callers = [await openCaller(first.url), await openCaller(failing.url)] as const;
    await callers[1][how]();
    await untilAsked(failing, payouts);
    await parts.database`
      update webhook_endpoints set url = ${second.url} where account_id = ${callers[1].accountId}`;
    await callers[0][how]();
    // All within 15 s, after which an attempt would have failed of itself.
    await Promise.all([untilAsked(first, payouts), untilAsked(second, payouts)]);
    const killedMs = performance.now();
    const sinceKillMs = () => Math.round(performance.now() - killedMs);
    await parts.crash(part);
    // The ladders are climbed by the worker of single payouts.
    if (part !== 'worker') await parts.crash('worker');
    for (const receiver of [first, second]) receiver.repair();
    const owed = await Promise.all(callers.map(({ accountId }) => underWay(accountId)));
    expect(owed.map(({ length }) => length > 0)).toEqual([true, true]);
    await parts.start('worker');
    await parts.start(part);

    const startedMs = sinceKillMs();
    const limitMs = Math.max(recoveryLimitMs - startedMs, afterStartMs);
    await untilDelivered(owed.flat(), limitMs);
    await annotate(`killed, started after ${startedMs} ms, all was sent after ${sinceKillMs()} ms`);
  },
);
