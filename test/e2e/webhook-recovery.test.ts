import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { eventually } from '../assertions/eventually.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { startTarpit } from '../fakes/tarpit.js';
import { createClient, textOf } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount } from '../servers/database.js';
import { type PartName, type Processes, startProcesses } from '../servers/processes.js';

/**
 * Time limit from the death of a worker, if its replacement starts in time. The promise is 30 s; the
 * rest allows for a busy machine.
 */
const recoveryLimitMs = 40_000;

/** Additional time after the start of a new worker, if that start alone uses up the limit. */
const afterStartMs = 15_000;

const payouts = 10;

let parts: Processes;

beforeAll(async () => {
  parts = await startProcesses();
});
afterAll(() => parts?.remove());
// Repairs what a failed test left down, so that the next test does not fail too.
beforeEach(() => parts.startAll());

/** An account whose receiver gets events of settled payouts. */
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

/** A receiver that never responds until it is repaired; records the requests received until then. */
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

async function untilReceived(receiver: Receiver, count: number): Promise<void> {
  await eventually(`${count} webhooks`, 60_000, () =>
    receiver.received.length >= count ? true : undefined,
  );
}

type Owed = { readonly eventId: string; readonly endpointId: string; readonly status: string };

/** The deliveries in progress when the worker died, except those that had just failed a second time. */
function underWay(accountId: string): Promise<readonly Owed[]> {
  return parts.database<Owed[]>`
    select d.event_id, d.endpoint_id, d.status
      from deliveries d join events e on e.id = d.event_id
     where e.account_id = ${accountId} and d.status = 'pending' and d.attempts > 0
       and d.next_attempt_at < now() + interval '1 minute'`;
}

async function untilDelivered(owed: readonly Owed[], limitMs: number): Promise<void> {
  let left: readonly object[] = [];
  await eventually('every delivery succeeds', limitMs, async () => {
    left = await parts.database`
      select * from deliveries where status <> 'delivered'
         and event_id = any (${owed.map(({ eventId }) => eventId)})`;
    return left.length === 0 ? true : undefined;
  }).catch((error: unknown) => {
    throw new Error(`Not delivered: ${JSON.stringify(left)}`, { cause: error });
  });
}

const killed: readonly { readonly part: PartName; readonly how: 'pay' | 'payAsBatch' }[] = [
  { part: 'worker', how: 'pay' },
  { part: 'batch-worker', how: 'payAsBatch' },
];
it.for(killed)(
  'deliveries in progress in a killed $part are soon sent again, also next to a tarpit',
  { timeout: 300_000 },
  async ({ part, how }, { annotate }) => {
    const tarpit = await startTarpit();
    onTestFinished(() => tarpit.close());
    await (await openCaller(tarpit.url))[how]();
    await eventually('the tarpit receives a request', 60_000, () =>
      tarpit.held() > 0 ? true : undefined,
    );

    // One receiver hangs on first attempts, the other on second attempts, five seconds later.
    const [first, second] = [await openHangingReceiver(), await openHangingReceiver()] as const;
    const failing = await startReceiver();
    onTestFinished(() => failing.close());
    failing.answerWith(500);
    const callers = [await openCaller(first.url), await openCaller(failing.url)] as const;
    await callers[1][how]();
    await untilReceived(failing, payouts);
    await parts.database`
      update webhook_endpoints set url = ${second.url} where account_id = ${callers[1].accountId}`;
    await callers[0][how]();
    // All within 15 s, as attempts time out by themselves after that.
    await Promise.all([untilReceived(first, payouts), untilReceived(second, payouts)]);
    const killedMs = performance.now();
    const sinceKillMs = () => Math.round(performance.now() - killedMs);
    await parts.crash(part);
    // The worker of single payouts runs the retries of deliveries.
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
