import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { eventually } from '../assertions/eventually.js';
import { startReceiver } from '../fakes/receiver.js';
import { createClient, textOf } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { composeOf } from '../servers/composeStandIn.js';
import { createTestAccount, unbalancedCurrencies } from '../servers/database.js';
import { followRunbook, openOperatorShell } from '../servers/operatorShell.js';
import { type PartName, type Processes, startProcesses } from '../servers/processes.js';

/**
 * The promise is 10 s for money and 30 s for webhooks after the last repair. These limits allow for a
 * machine so slow and busy that the backlog itself takes a minute, as was seen; the annotations report
 * the actual time.
 */
const quietLimitMs = 150_000;
const deliveredLimitMs = 150_000;

/** Duration of the outage: as long as a restart on another machine may take. */
const awayMs = 10_000;

/** Pause between payouts. The load is below capacity, so that any backlog comes from the outage. */
const intervalMs = 300;
const mostPayouts = 200;

const all: readonly PartName[] = [
  'temporal',
  'postgres',
  'sandbox-bank',
  'api',
  'worker',
  'batch-worker',
];

type Outage = {
  readonly of: string;
  readonly away: readonly PartName[];
  /** Repairs the outage; resolves with the checks to make once everything has moved. */
  readonly repair: () => Promise<() => Promise<void>>;
};

const start = async (names: readonly PartName[]) => {
  for (const name of names) await parts.start(name);
  return async () => undefined;
};

const outages: readonly Outage[] = [
  { of: 'Temporal', away: ['temporal'], repair: loseTemporal },
  { of: 'PostgreSQL', away: ['postgres'], repair: () => start(['postgres']) },
  { of: 'everything', away: all, repair: () => start(all) },
];

let parts: Processes;

beforeAll(async () => {
  parts = await startProcesses();
});
afterAll(() => parts?.remove());
beforeEach(() => parts.startAll());

/** Temporal restarts with an empty store, and an operator follows the runbook. */
async function loseTemporal(): Promise<() => Promise<void>> {
  await rm(join(parts.directory, 'temporal.sqlite'));
  await parts.start('temporal');
  const none = () => Promise.reject(new Error('This runbook has no SQL statement.'));
  const shell = await openOperatorShell(() => parts.operatorEnv, {
    docker: composeOf(parts, {}, none),
  });
  onTestFinished(() => shell.close());
  const walk = followRunbook(shell, "Temporal's data is lost", {});
  await walk.seen('Symptoms.');
  await walk.follow();
  return () => walk.seen('It worked when');
}

/** Opens an account with a receiver that requests single payouts and batches until it is stopped. */
async function openBusyAccount() {
  const receiver = await startReceiver();
  onTestFinished(() => receiver.close());
  const { account, apiKey } = await createTestAccount(parts.database);
  const client = createClient(parts.apiUrl, apiKey);
  await client('POST /v1/webhook_endpoints', { json: { url: receiver.url, events: ['*'] } });
  const payee = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
  const item = (reference: string) => ({
    source_currency: 'USD',
    amount: '1000',
    beneficiary: payee,
    reference,
  });
  let isStopped = false;
  const single = async (n: number) => {
    const form = item(n % 2 === 0 ? 'simulate: delay 2s' : `Invoice ${n}`);
    await client('POST /v1/payouts', { form });
  };
  const batch = () => {
    const payouts = Array.from({ length: 50 }, (_, n) => item(`Invoice ${n}`));
    return client('POST /v1/batches', { json: { payouts } });
  };
  const paying = (async () => {
    for (let n = 0; !isStopped && n < mostPayouts; n += 1) {
      // Requests without an answer during the outage are ignored: only accepted payouts count.
      void single(n).catch(() => undefined);
      if (n % 10 === 0) void batch().catch(() => undefined);
      await delay(intervalMs);
    }
  })();
  return {
    accountId: account.id,
    stop: async () => {
      isStopped = true;
      await paying;
    },
  };
}

/** All accepted payouts that have not reached a final status. */
async function open(accountId: string): Promise<readonly object[]> {
  return parts.database`
    select id, driver, status, attention_reason, wake_at - now() as due from payouts
     where account_id = ${accountId} and status in ('pending', 'processing', 'sent')`;
}

async function undelivered(accountId: string): Promise<readonly object[]> {
  const rows = await parts.database`
    select d.* from deliveries d join events e on e.id = d.event_id
     where e.account_id = ${accountId} and d.status = 'pending'`;
  const groups = await parts.database`
    select * from delivery_groups where account_id = ${accountId}`;
  return [...rows, ...groups];
}

async function untilNone(
  what: string,
  limitMs: number,
  left: () => Promise<readonly object[]>,
): Promise<void> {
  let rows: readonly object[] = [];
  await eventually(what, limitMs, async () => {
    rows = await left();
    return rows.length === 0 ? true : undefined;
  }).catch((error: unknown) => {
    throw new Error(`${what}: ${rows.length} left, ${JSON.stringify(rows[0])}`, { cause: error });
  });
}

it.for(outages)(
  'every payout ends and every webhook is sent soon after an outage of $of, whatever it lost',
  { timeout: quietLimitMs + deliveredLimitMs + 100_000 },
  async ({ away, repair }, { annotate }) => {
    const account = await openBusyAccount();
    await delay(3_000);
    for (const part of away) await parts.crash(part);
    await delay(awayMs);
    const seeThatItWorked = await repair();
    const repairedMs = performance.now();
    const sinceMs = () => Math.round(performance.now() - repairedMs);
    await account.stop();
    await untilNone('all payouts are final', quietLimitMs, () => open(account.accountId));
    const quietMs = sinceMs();
    await untilNone('all webhooks are delivered', deliveredLimitMs, () =>
      undelivered(account.accountId),
    );
    const [taken] = await parts.database<{ count: bigint }[]>`
      select count(*) from payouts where account_id = ${account.accountId}`;
    await annotate(`${taken?.count} payouts: quiet ${quietMs} ms, webhooks ${sinceMs()} ms`);
    expect(await unbalancedCurrencies(parts.database)).toEqual([]);
    await seeThatItWorked();
  },
);
