import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cancelItems } from '../../src/activities/cancellation.js';
import { transaction } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { findRetried, insertPayout, lockPayouts, type PayoutRow } from '../../src/db/payouts.js';
import { storeRailEvents } from '../../src/db/railInbox.js';
import type { Rail } from '../../src/rails/rail.js';
import { QuietRail } from '../fakes/quietRail.js';
import { attempt } from '../fixtures/attempt.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { livePayout, payoutOf, requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  withoutTriggers,
} from '../servers/database.js';

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

class RejectingRail extends QuietRail {
  readonly sent: string[] = [];
  readonly lookedUp: string[] = [];
  rejects = true;
  isAway = false;
  override readonly lookup: Rail['lookup'] = async (keys) => {
    this.lookedUp.push(...keys);
    return keys.map((key) => ({ key, kind: 'not_found' as const }));
  };
  override readonly submit: Rail['submit'] = async (transfers) => {
    if (this.isAway) throw new Error('the bank is away');
    this.sent.push(...transfers.map(({ key }) => key));
    return transfers.map(({ key }) =>
      this.rejects
        ? { key, kind: 'rejected' as const, code: 'AC04' }
        : { key, kind: 'accepted' as const, reference: 'r' },
    );
  };
}

it.each(['before', 'after'] as const)(
  'a report of the bank about a refused payout parks it, if it arrives %s the refusal',
  async (when) => {
    const activities = payoutActivities(test.worker, new QuietRail());
    const { account } = await createTestAccount(test.database);
    // As after a restore: paid in the period that the database has lost, and pending again.
    const { id } = await requestPayout(test.database, account.id);
    const input = { driver: id, ids: [id] };
    const report = { kind: 'settled', amountMinor: 106_654n, currency: 'EUR' } as const;
    const event = { id: `e:${id}`, key: id, report };
    if (when === 'before') await storeRailEvents(test.database, 'sandbox', [event]);
    await activities.decidePayouts({ ...input, workflowAgeMs: 6 * 60_000 });
    expect(await payoutOf(test.database, account.id, id)).toMatchObject({
      status: 'failed',
      statusReason: 'quote_expired',
    });
    // The bank reports it (again).
    await storeRailEvents(test.database, 'sandbox', [event]);
    await activities.applyRailEvents(input);
    expect(await payoutOf(test.database, account.id, id)).toMatchObject({
      attentionReason: 'contradiction',
    });
  },
);

/** A payout that the rail has rejected, and a retry of it that was accepted and not sent yet. */
async function acceptedRetry(rail: Rail) {
  const activities = payoutActivities(test.worker, rail);
  const { account } = await createTestAccount(test.database);
  const { id: firstId } = await requestPayout(test.database, account.id);
  const of = (id: string) => ({ driver: id, ids: [id] });
  await activities.decidePayouts({ ...of(firstId), workflowAgeMs: 0 });
  await attempt(() => activities.submitPayouts(of(firstId)));
  const first = await payoutOf(test.database, account.id, firstId);
  expect(first.status).toBe('failed');
  const { beneficiaryId } = first;
  const id = newId('payout');
  const retry = { ...livePayout, id, accountId: account.id, driver: id, beneficiaryId };
  await insertPayout(test.database, { ...retry, amount: 5_000n }, firstId);
  await activities.decidePayouts({ ...of(id), workflowAgeMs: 0 });
  const settled = {
    kind: 'settled',
    amountMinor: first.receiveMinor ?? 0n,
    currency: 'EUR',
  } as const;
  return { activities, account, first, id, of, settled };
}

it('a retry is not sent once the bank reports that it paid the first payout', async () => {
  const rail = new RejectingRail();
  const { activities, account, first, id, of, settled: report } = await acceptedRetry(rail);
  // The bank is down for hours, ...
  rail.isAway = true;
  rail.rejects = false;
  await attempt(() => activities.submitPayouts(of(id))).catch(String);
  // ... and then reports that it has paid the first payout after all.
  await storeRailEvents(test.database, 'sandbox', [{ id: `l:${id}`, key: first.id, report }]);
  await activities.applyRailEvents(of(first.id));
  expect(await payoutOf(test.database, account.id, first.id)).toMatchObject({
    attentionReason: 'paid_after_release',
  });
  rail.isAway = false;
  await attempt(() => activities.submitPayouts(of(id))).catch(String);
  expect(rail.sent).not.toContain(id);
});

describe('a retry of a payout that may have been paid since it was accepted', () => {
  const rail = new RejectingRail();
  let retry: PayoutRow;

  beforeAll(async () => {
    const { activities, account, first, id, of, settled: report } = await acceptedRetry(rail);
    // Before the retry is sent, the bank reports that it paid the first one after all.
    await storeRailEvents(test.database, 'sandbox', [{ id: `l:${id}`, key: first.id, report }]);
    rail.rejects = false;
    await attempt(() => activities.submitPayouts(of(id)));
    retry = await payoutOf(test.database, account.id, id);
  });

  it('waits for an operator, and is not sent', () => {
    expect(retry).toMatchObject({ status: 'processing', attentionReason: 'outcome_unknown' });
    expect(rail.sent).not.toContain(retry.id);
  });

  it('is known not to have been sent, so that its hold can be released at once', async () => {
    expect(retry).toMatchObject({ submitStartedAt: null, lastSentAt: null });
    const [row] = await lockPayouts(test.worker, null, [retry.id]);
    expect(row).toMatchObject({ submitStartedAt: null, lastSentAt: null });
  });
});

describe('after an interruption in which the database may have lost data', () => {
  /** A payout that is requested before the interruption, and refused or canceled after it. */
  async function endedAfter(ends: 'failed' | 'canceled', interruption: 'around' | 'before') {
    const { account } = await createTestAccount(test.database);
    const { id } = await requestPayout(test.database, account.id);
    const activities = payoutActivities(test.worker, new QuietRail());
    if (ends === 'canceled') {
      await transaction(test.worker, (sql) => cancelItems(sql, usualFactRules, [id]));
    } else {
      await activities.decidePayouts({ driver: id, ids: [id], workflowAgeMs: 6 * 60_000 });
    }
    expect((await payoutOf(test.database, account.id, id)).status).toBe(ends);
    const lost = interruption === 'around' ? '5 minutes' : '20 minutes';
    await withoutTriggers(test.database, async (sql) => {
      await sql`update payouts set requested_at = now() - interval '7 minutes' where id = ${id}`;
      await sql`delete from interruptions`;
      await sql`insert into interruptions values
        (now() - ${lost}::interval, now() - ${lost}::interval + interval '1 minute')`;
    });
    // The API accepts retries, and the workers decide them.
    const found = await Promise.all(
      [test.api, test.worker].map((sql) => findRetried(sql, account.id, id)),
    );
    return found.map((row) => row?.mayBePaid);
  }
  afterAll(() => withoutTriggers(test.database, (sql) => sql`delete from interruptions`));

  it.each(['failed', 'canceled'] as const)(
    'one that was pending then, and %s, may have been paid: it is not retried',
    async (ends) => expect(await endedAfter(ends, 'around')).toEqual([true, true]),
  );

  it.each(['failed', 'canceled'] as const)(
    'one that was requested later, and %s, is retried',
    async (ends) => expect(await endedAfter(ends, 'before')).toEqual([false, false]),
  );
});

it('a payout on which the bank has reported is looked up before it is sent, however it was lost', async () => {
  const rail = new RejectingRail();
  const activities = payoutActivities(test.worker, rail);
  const { account } = await createTestAccount(test.database);
  // As after the restore of a copy of the disks that shows no interruption: paid, and pending again.
  const { id } = await requestPayout(test.database, account.id);
  const input = { driver: id, ids: [id] };
  const report = { kind: 'settled', amountMinor: 106_654n, currency: 'EUR' } as const;
  await storeRailEvents(test.database, 'sandbox', [{ id: `e:${id}`, key: id, report }]);
  await activities.decidePayouts({ ...input, workflowAgeMs: 0 });
  const [row] = await lockPayouts(test.worker, null, [id]);
  expect(row).toMatchObject({ status: 'processing', submitStartedAt: row?.requestedAt });
  expect(row?.lastSentAt?.getTime()).toBeGreaterThanOrEqual(row?.requestedAt.getTime() ?? 0);
  await attempt(() => activities.submitPayouts(input));
  expect(rail.lookedUp).toEqual([id]);
});
