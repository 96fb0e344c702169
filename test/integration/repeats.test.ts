import { afterAll, beforeAll, expect, it } from 'vitest';
import { newId } from '../../src/db/id.js';
import { insertPayout } from '../../src/db/payouts.js';
import { storeRailEvents } from '../../src/db/railInbox.js';
import type { Rail } from '../../src/rails/rail.js';
import { QuietRail } from '../fakes/quietRail.js';
import { attempt } from '../fixtures/attempt.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { livePayout, payoutOf, requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

class RejectingRail extends QuietRail {
  readonly sent: string[] = [];
  rejects = true;
  isAway = false;
  override readonly lookup: Rail['lookup'] = async (keys) =>
    keys.map((key) => ({ key, kind: 'not_found' as const }));
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

it('a retry is not sent once the bank reports that it paid the first payout', async () => {
  const rail = new RejectingRail();
  const activities = payoutActivities(test.worker, rail);
  const { account } = await createTestAccount(test.database);
  const first = await requestPayout(test.database, account.id);
  const of = (id: string) => ({ driver: id, ids: [id] });
  await activities.decidePayouts({ ...of(first.id), workflowAgeMs: 0 });
  await attempt(() => activities.submitPayouts(of(first.id)));
  const failed = await payoutOf(test.database, account.id, first.id);
  expect(failed.status).toBe('failed');
  const id = newId('payout');
  await insertPayout(
    test.database,
    {
      ...livePayout,
      id,
      accountId: account.id,
      driver: id,
      beneficiaryId: failed.beneficiaryId,
      amount: 5_000n,
    },
    first.id,
  );
  await activities.decidePayouts({ ...of(id), workflowAgeMs: 0 });
  // The bank is down for hours, ...
  rail.isAway = true;
  rail.rejects = false;
  await attempt(() => activities.submitPayouts(of(id))).catch(String);
  // ... and then reports that it has paid the first payout after all.
  const report = {
    kind: 'settled',
    amountMinor: failed.receiveMinor ?? 0n,
    currency: 'EUR',
  } as const;
  await storeRailEvents(test.database, 'sandbox', [{ id: `l:${id}`, key: first.id, report }]);
  await activities.applyRailEvents(of(first.id));
  expect(await payoutOf(test.database, account.id, first.id)).toMatchObject({
    attentionReason: 'paid_after_release',
  });
  rail.isAway = false;
  await attempt(() => activities.submitPayouts(of(id))).catch(String);
  expect(rail.sent).not.toContain(id);
});
