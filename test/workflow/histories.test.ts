import type { WorkflowHandle } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { newId } from '../../src/db/id.js';
import { type PayoutRow, requestCancellation } from '../../src/db/payouts.js';
import { storeRailEvents } from '../../src/db/railInbox.js';
import { insertWebhookEndpoint } from '../../src/db/webhookEndpoints.js';
import type { OperatorCommand } from '../../src/domain/operator.js';
import { runUpdate, wakePayout } from '../../src/temporal/workflowCalls.js';
import type { payout } from '../../src/workflows/payout.js';
import { keepHistory } from '../assertions/keepHistory.js';
import { QuietRail } from '../fakes/quietRail.js';
import { keyring } from '../fixtures/keyring.js';
import { command } from '../fixtures/operators.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { beneficiary, payoutOf, requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';
import { startDecided, startTimeSkipping, type TimeSkipping } from '../servers/timeSkipping.js';

const halfAMinuteMs = 30_000;
const hourMs = 60 * 60 * 1000;
const dayMs = 24 * hourMs;

// Every path of a payout on the real ledger, with one history each.

/** A payout that was just requested, and the events that can happen to it. */
type Ride = {
  readonly row: PayoutRow;
  readonly handle: WorkflowHandle<typeof payout>;
  /** Stores a report as the API does for a callback. */
  readonly report: (kind: 'settled' | 'returned') => Promise<void>;
};

let server: TimeSkipping;
let store: TestDatabase;

beforeAll(async () => {
  [server, store] = await Promise.all([startTimeSkipping(), createTestDatabase()]);
});
afterAll(async () => {
  await server.stop();
  await store.drop();
});

async function ride(
  way: string,
  { rail = new QuietRail(), funds = 1_000_000n },
  take: (ride: Ride) => Promise<string>,
): Promise<string> {
  const { database } = store;
  const { account } = await createTestAccount(database, { funds: { USD: funds } });
  await listen(account.id);
  const row = await requestPayout(database, account.id);
  const activities = payoutActivities(store.worker, rail, 1_000_000n);
  return server.withWorkers(activities, async () => {
    await startDecided(server, row);
    const handle = server.client.workflow.getHandle<typeof payout>(row.id);
    const status = await take({
      row,
      handle,
      report: (kind) => callBack(account.id, row.id, kind),
    });
    await keepHistory(server, `payout-${way}`, handle.workflowId);
    return status;
  });
}

/** Adds an endpoint to the account, so that events are delivered. */
async function listen(accountId: string): Promise<void> {
  await insertWebhookEndpoint(store.database, keyring, {
    id: newId('webhookEndpoint'),
    accountId,
    url: 'https://example.com/webhooks',
    events: ['payout.sent', 'payout.settled', 'payout.failed', 'payout.returned'],
    secret: 'whsec_dGVzdA==',
    apiVersion: '2026-06-01',
  });
}

/** Personal data that no history may contain; keepHistory checks for it. */
const iban = beneficiary.iban;

const operate = (row: PayoutRow, requested: OperatorCommand) =>
  command({ database: store.database, temporal: server.client }, row.id, requested);

async function callBack(
  accountId: string,
  id: string,
  kind: 'settled' | 'returned',
): Promise<void> {
  const { receiveMinor, destinationCurrency } = await payoutOf(store.database, accountId, id);
  const amount = { amountMinor: receiveMinor ?? 0n, currency: destinationCurrency ?? '' };
  const fact =
    kind === 'settled'
      ? { kind, ...amount }
      : { kind, ...amount, code: 'AC04', reason: 'closed account' };
  const { payouts: woken } = await storeRailEvents(store.database, 'sandbox', [
    { id: `test:${id}:${kind}`, key: id, report: fact },
  ]);
  for (const row of woken) await wakePayout(server.client, row);
}

describe('the history of a payout contains no personal data and replays, when the payout is', () => {
  it('settled by callback', async () => {
    const status = await ride('settled-by-callback', {}, async ({ handle, report }) => {
      await server.sleep(halfAMinuteMs);
      await report('settled');
      return handle.result();
    });
    expect(status).toBe('settled');
  });

  it('settled by poll', async () => {
    const rail = new QuietRail({ settlesAfterLookups: 5 });
    const status = await ride('settled-by-poll', { rail }, ({ handle }) => handle.result());
    expect(status).toBe('settled');
  });

  it('settled by a callback between two polls', async () => {
    const status = await ride('settled-while-polled', {}, async ({ handle, report }) => {
      await server.sleep(hourMs);
      await report('settled');
      return handle.result();
    });
    expect(status).toBe('settled');
  });

  it('settled by a callback while its submission is unanswered', async () => {
    const way = 'settled-while-submitted';
    const rail = new QuietRail({ answers: false });
    const status = await ride(way, { rail }, async ({ handle, report }) => {
      await server.sleep(halfAMinuteMs);
      await report('settled');
      return handle.result();
    });
    expect(status).toBe('settled');
  });

  it('refused', async () => {
    const status = await ride('refused', { funds: 1n }, ({ handle }) => handle.result());
    expect(status).toBe('failed');
  });

  it('parked, and settled later', async () => {
    const status = await ride('parked-then-settled', {}, async ({ row, handle, report }) => {
      await server.sleep(6 * dayMs);
      const parked = await payoutOf(store.database, row.accountId, row.id);
      expect(parked).toMatchObject({ status: 'sent', attentionReason: 'settle_by_passed' });
      await report('settled');
      return handle.result();
    });
    expect(status).toBe('settled');
  });

  it('parked, and settled by an operator on evidence', async () => {
    const status = await ride('settled-by-operator', {}, async ({ row, handle }) => {
      await server.sleep(6 * dayMs);
      const result = await operate(row, { kind: 'markSettled', evidence: iban });
      expect(result).toMatchObject({ outcome: 'done' });
      return handle.result();
    });
    expect(status).toBe('settled');
  });

  it('parked, given four more weeks, and settled by poll', async () => {
    const rail = new QuietRail({ settlesAfterLookups: 200 });
    const status = await ride('extended', { rail }, async ({ row, handle }) => {
      await server.sleep(6 * dayMs);
      // Text that people may type into Temporal's own page must not enter a history.
      const typed = (update: string, ...args: [unknown, ...unknown[]]) =>
        server.client.workflow.getHandle(row.id).executeUpdate(update, { args });
      const [one, none] = ['expected one id', 'expected no argument'];
      const because = (text: string) => ({ cause: { message: expect.stringContaining(text) } });
      for (const text of [iban, `op_${iban}`, { operator: iban }]) {
        await expect(typed('operate', text)).rejects.toMatchObject(because(one));
        await expect(typed('operate', newId('operatorAction'), text)).rejects.toMatchObject(
          because(one),
        );
        await expect(typed('cancel', text)).rejects.toMatchObject(because(none));
      }
      // The activity uses the clock of its process, which no test has moved.
      const until = new Date(Date.now() + 29 * dayMs).toISOString();
      const result = await operate(row, { kind: 'extendDeadline', until });
      expect(result).toMatchObject({ outcome: 'done' });
      return handle.result();
    });
    expect(status).toBe('settled');
  });

  it('canceled by its customer while its submission is unanswered', async () => {
    const rail = new QuietRail({ answers: false, voids: true });
    const status = await ride('canceled', { rail }, async ({ row, handle }) => {
      await server.sleep(halfAMinuteMs);
      await requestCancellation(store.database, row.id);
      await runUpdate(server.client, row, { name: 'cancel', args: [] }, 10_000);
      return handle.result();
    });
    expect(status).toBe('canceled');
  });

  it('settled, and returned by a run that starts weeks later', async () => {
    const status = await ride('restarted-with-events', {}, async ({ handle, report }) => {
      await server.sleep(halfAMinuteMs);
      await report('settled');
      await handle.result();
      await server.sleep(21 * dayMs);
      await report('returned');
      return handle.result();
    });
    expect(status).toBe('returned');
  });
});
