import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Part } from '../../sandbox/stack/process.js';
import { railKey } from '../../src/domain/payout.js';
import { eventually } from '../assertions/eventually.js';
import { type LoadBalancer, startLoadBalancer } from '../fakes/loadBalancer.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { type ApiAnswer, type ApiClient, createClient, textOf } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount, unbalancedCurrencies } from '../servers/database.js';
import { type Processes, type ReplicaName, startProcesses } from '../servers/processes.js';
import { distinctEvents, expectedItems, startOrderedBatch } from './orderedBatch.js';

/** Twenty requests a second, as an integrator of some size sends them. */
const intervalMs = 50;
/** A deadline for a machine that has much to do, and not what is promised. */
const limitMs = 60_000;
const kinds: readonly ReplicaName[] = ['api', 'worker', 'batch-worker'];

let balancer: LoadBalancer;
let parts: Processes;
let receiver: Receiver;
/** The processes that run beside those that `parts` has started, or instead of them. */
const replicas = new Map<ReplicaName, Part[]>();

beforeAll(async () => {
  [balancer, receiver] = await Promise.all([startLoadBalancer(), startReceiver()]);
  const env = { STOP_NOTICE_SECONDS: '2' };
  parts = await startProcesses({ env, callbacksTo: balancer.url });
  await balancer.add({ url: parts.apiUrl, readyUrl: readyUrlOf(parts.apiUrl) });
  for (const kind of kinds) replicas.set(kind, [await startReplica(kind)]);
});
afterAll(async () => {
  for (const part of [...replicas.values()].flat()) await part.stop();
  await Promise.all([parts?.remove(), balancer?.close(), receiver?.close()]);
});

async function startReplica(kind: ReplicaName): Promise<Part> {
  const part = await parts.startReplica(kind);
  const url = part.announced;
  if (kind === 'api') await balancer.add({ url, readyUrl: readyUrlOf(url) });
  return part;
}

/** Where an API says whether it is ready, by what it has logged at its start. */
function readyUrlOf(url: string): string {
  const line = parts.lines.find((each) => each.includes(`"ready":"${url}"`)) ?? '';
  const metrics = /"metrics":"(http[^"]+)"/.exec(line)?.[1];
  if (metrics === undefined)
    throw new Error(`The API at ${url} has not said where its metrics are.`);
  return `${metrics}/readyz`;
}

/** Replaces both processes of a kind, one after the other: the new one is there before the old goes. */
async function replace(kind: ReplicaName): Promise<void> {
  const next = [await startReplica(kind)];
  await parts.stop(kind);
  next.push(await startReplica(kind));
  for (const old of replicas.get(kind) ?? []) await old.stop();
  replicas.set(kind, next);
}

/** Requests at an even pace until it is stopped: payouts, and what an integrator looks at meanwhile. */
function startLoad(client: ApiClient, payee: string, first: string) {
  const paid: string[] = [];
  const failed: object[] = [];
  const tookMs: number[] = [];
  const open = new Set<Promise<void>>();
  const pay = async (n: number): Promise<ApiAnswer> => {
    const form = { source_currency: 'USD', amount: '1000', beneficiary: payee };
    const answer = await client('POST /v1/payouts', { form, idempotencyKey: `load-${n}` });
    paid.push(textOf(answer, 'id'));
    return answer;
  };
  const requests: readonly ((n: number) => Promise<ApiAnswer>)[] = [
    pay,
    () => client('GET /v1/balances'),
    pay,
    () => client(`GET /v1/payouts/${paid.at(-1) ?? first}`),
    () => client('GET /v1/payouts?status=settled&limit=5'),
  ];
  const send = async (n: number) => {
    const startedMs = performance.now();
    try {
      const answer = await requests[n % requests.length]?.(n);
      if (answer === undefined || answer.status > 202) failed.push({ n, ...answer });
    } catch (error) {
      failed.push({ n, error: String(error) });
    }
    tookMs.push(performance.now() - startedMs);
  };
  let isStopped = false;
  const sending = (async () => {
    for (let n = 0; !isStopped; n += 1) {
      const sent: Promise<void> = send(n).finally(() => open.delete(sent));
      open.add(sent);
      await delay(intervalMs);
    }
    await Promise.all(open);
  })();
  return {
    paid,
    failed,
    /** The time in which 99 of 100 requests since the last call were answered. */
    p99Ms: () => {
      const sorted = tookMs.splice(0).sort((a, b) => a - b);
      return `${sorted[Math.floor(sorted.length * 0.99)]?.toFixed(0)} ms of ${sorted.length}`;
    },
    stop: () => {
      isStopped = true;
      return sending;
    },
  };
}

it('replaces every process in turn without a failed request, under load and a batch', {
  timeout: 300_000,
}, async ({ annotate }) => {
  const { account, apiKey } = await createTestAccount(parts.database, {
    funds: { USD: 100_000_000n },
  });
  const client = createClient(balancer.url, apiKey);
  await client('POST /v1/webhook_endpoints', { json: { url: receiver.url, events: ['*'] } });
  const payee = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  const form = { source_currency: 'USD', amount: '1000', beneficiary: payee };
  const first = textOf(await client('POST /v1/payouts', { form }), 'id');
  const load = startLoad(client, payee, first);
  await eventually('some were paid', limitMs, () => load.paid.length > 40 || undefined);
  await annotate(`p99 before: ${load.p99Ms()}`);
  const batch = await startOrderedBatch({ ...parts, apiUrl: balancer.url }, 1_000, 10);
  for (const kind of kinds) {
    await replace(kind);
    await annotate(`p99 while ${kind} was replaced: ${load.p99Ms()}`);
  }
  await parts.stop('temporal');
  await parts.start('temporal');
  await annotate(`p99 while Temporal was replaced: ${load.p99Ms()}`);
  await load.stop();
  expect(load.failed).toEqual([]);

  await batch.untilOver(limitMs);
  const { items } = await batch.ending();
  expect(items).toMatchObject(expectedItems(1_000));
  await batch.receiver.close();

  const open = () => parts.database`
      select id, status, attention_reason from payouts
       where account_id = ${account.id} and status <> 'settled'`;
  await eventually(
    'all are settled',
    limitMs,
    async () => (await open()).length === 0 || undefined,
  );
  const transfers = await parts.transfers();
  expect(new Set(transfers).size).toBe(transfers.length);
  expect(transfers).toEqual(expect.arrayContaining(load.paid.map(railKey)));
  const ofBatch = items.reduce((sum, item) => sum + item.transfers, 0);
  expect(transfers.length).toBe(1 + load.paid.length + ofBatch);
  const events = await parts.database<{ id: string }[]>`
      select id from events where account_id = ${account.id}`;
  await eventually(
    'all webhooks came',
    limitMs,
    () => distinctEvents(receiver).size === events.length || undefined,
  );
  expect(await unbalancedCurrencies(parts.database)).toEqual([]);
});
