import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ledgerActivities } from '../../src/activities/ledger.js';
import { railActivities } from '../../src/activities/submission.js';
import { heldRateMaximumAgeMs } from '../../src/domain/acceptance.js';
import { createRails } from '../../src/rails/registry.js';
import { taskQueues } from '../../src/workflows/messages.js';
import type { payout } from '../../src/workflows/payout.js';
import { QuietRail } from '../fakes/quietRail.js';
import { silentDeliverer } from '../fakes/silentDeliverer.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { keyring } from '../fixtures/keyring.js';
import { payoutOf, rateMaximumAgeMs, requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';
import { startTimeSkipping, type TimeSkipping } from '../servers/timeSkipping.js';

/**
 * A quoted payout is refused if it is decided too late. Its age is the larger of what PostgreSQL
 * and Temporal have measured; here only Temporal's clock moves.
 */
describe('a quoted payout', () => {
  let server: TimeSkipping;
  let store: TestDatabase;

  beforeAll(async () => {
    [server, store] = await Promise.all([startTimeSkipping(), createTestDatabase()]);
  });
  afterAll(async () => {
    await server.stop();
    await store.drop();
  });

  /** Runs a payout on the real ledger, with its first step delayed by this time. */
  async function decideAfter(startDelay: number) {
    const { database } = store;
    const { account } = await createTestAccount(database);
    const { id, requestedAt } = await requestPayout(database, account.id);
    const deps = {
      database: store.worker,
      rails: createRails([new QuietRail({ settlesAfterLookups: 1 })]),
      keyring,
      rateMaximumAgeMs,
      factRules: usualFactRules,
      deliverer: silentDeliverer,
    };
    const activities = { ...ledgerActivities(deps), ...railActivities(deps) };
    await server.withWorkers(activities, async () => {
      await server.client.workflow.execute<typeof payout>('payout', {
        workflowId: id,
        taskQueue: taskQueues.payouts,
        args: [{ payoutId: id }],
        startDelay,
      });
    });
    const [clock] = await database<{ now: Date }[]>`select now()`;
    const ageMs = (clock?.now.getTime() ?? 0) - requestedAt.getTime();
    expect(ageMs).toBeLessThan(heldRateMaximumAgeMs / 5);
    return payoutOf(database, account.id, id);
  }

  it('that is decided six minutes late is refused, because its rate was not promised that long', async () => {
    const row = await decideAfter(6 * 60_000);
    expect(row).toMatchObject({ status: 'failed', refusal: { code: 'quote_expired' } });
    expect(row.sourceMinor).toBeNull();
  });

  it('that is decided four minutes late is accepted', async () => {
    expect(await decideAfter(4 * 60_000)).toMatchObject({ status: 'settled', refusal: null });
  });

  it('that is decided at once is accepted', async () => {
    expect(await decideAfter(0)).toMatchObject({ status: 'settled', refusal: null });
  });
});
