import { setTimeout as delay } from 'node:timers/promises';
import { onTestFinished } from 'vitest';
import type { Receiver } from '../fakes/receiver.js';
import { type ApiAnswer, type ApiClient, createClient, textOf } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { createTestAccount } from '../servers/database.js';
import type { Processes } from '../servers/processes.js';

/** Pause between requests: twenty per second, the load of a medium-sized integrator. */
const intervalMs = 50;

/** Maximum number of reported failures: one cause fails hundreds of requests, and a few explain it. */
const mostFailures = 5;

/** An integrator with money, a beneficiary and an endpoint for every event. */
export type Caller = {
  readonly accountId: string;
  readonly client: ApiClient;
  /** Requests a payout of 10.00 USD; the bank interprets the reference as an order. */
  readonly pay: (idempotencyKey: string, reference?: string) => Promise<ApiAnswer>;
};

export async function openCaller(
  { database }: Processes,
  apiUrl: string,
  receiver: Receiver,
): Promise<Caller> {
  const { account, apiKey } = await createTestAccount(database, { funds: { USD: 100_000_000n } });
  const client = createClient(apiUrl, apiKey);
  await client('POST /v1/webhook_endpoints', { json: { url: receiver.url, events: ['*'] } });
  const payee = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  const form = { source_currency: 'USD', amount: '1000', beneficiary: payee };
  return {
    accountId: account.id,
    client,
    pay: (idempotencyKey, reference = 'Invoice') =>
      client('POST /v1/payouts', { form: { ...form, reference }, idempotencyKey }),
  };
}

/**
 * Sends requests at a steady pace until it is stopped or its test ends: payouts, and the reads that an
 * integrator makes in between.
 */
export function startLoad({ client, pay }: Caller, name: string) {
  const paid: string[] = [];
  const failed: string[] = [];
  const tookMs: number[] = [];
  const open = new Set<Promise<void>>();
  const payOne = async (n: number) => {
    const answer = await pay(`${name}-${n}`);
    paid.push(textOf(answer, 'id'));
    return answer;
  };
  const lookAtLast = () => {
    const last = paid.at(-1);
    return client(last === undefined ? 'GET /v1/balances' : `GET /v1/payouts/${last}`);
  };
  const requests: readonly ((n: number) => Promise<ApiAnswer>)[] = [
    payOne,
    () => client('GET /v1/balances'),
    payOne,
    lookAtLast,
    () => client('GET /v1/payouts?status=settled&limit=5'),
  ];
  const fail = (n: number, why: string) => {
    if (failed.length < mostFailures) failed.push(`${n}: ${why}`);
  };
  const send = async (n: number) => {
    const startedMs = performance.now();
    try {
      const answer = await requests[n % requests.length]?.(n);
      if (answer === undefined || answer.status > 202) fail(n, JSON.stringify(answer));
    } catch (error) {
      fail(n, String(error));
    }
    tookMs.push(performance.now() - startedMs);
  };
  let isStopped = false;
  let reported = 0;
  const sending = (async () => {
    for (let n = 0; !isStopped; n += 1) {
      const sent: Promise<void> = send(n).finally(() => open.delete(sent));
      open.add(sent);
      await delay(intervalMs);
    }
    await Promise.all(open);
  })();
  const stop = () => {
    isStopped = true;
    return sending;
  };
  onTestFinished(stop);
  return {
    paid,
    failed,
    answered: () => tookMs.length,
    /** The 99th percentile of latency since the last call, or since the request of this number. */
    p99Ms: (after = reported) => {
      const sorted = tookMs.slice(after).sort((a, b) => a - b);
      reported = tookMs.length;
      return `${sorted[Math.floor(sorted.length * 0.99)]?.toFixed(0)} ms of ${sorted.length}`;
    },
    stop,
  };
}
