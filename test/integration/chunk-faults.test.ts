import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { batchActivities } from '../../src/activities/batch.js';
import { chunkActivities } from '../../src/activities/chunk.js';
import type { PayoutRow } from '../../src/db/payouts.js';
import { createRails } from '../../src/rails/registry.js';
import { QuietRail } from '../fakes/quietRail.js';
import { silentDeliverer } from '../fakes/silentDeliverer.js';
import { attempt } from '../fixtures/attempt.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { absentTemporal } from '../fixtures/interleaving.js';
import { keyring } from '../fixtures/keyring.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { rateMaximumAgeMs } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

function activitiesWith(rail: QuietRail) {
  const deps = {
    database: test.worker,
    rails: createRails([rail]),
    keyring,
    rateMaximumAgeMs,
    factRules: usualFactRules,
    deliverer: silentDeliverer,
    temporal: absentTemporal(),
    log: pino({ level: 'silent' }),
  };
  return { ...batchActivities(deps), ...chunkActivities(deps) };
}

const rowsOf = (batchId: string) => test.database<PayoutRow[]>`
  select * from payouts where batch_id = ${batchId} order by batch_index`;

describe('a bug that affects one payout of a chunk', () => {
  /** A chunk of three accepted payouts; any change of the first one's status fails. */
  async function brokenChunk(rail: QuietRail, isSubmitted: boolean) {
    const { account } = await createTestAccount(test.database, { funds: { USD: 1_000_000n } });
    const batchId = await requestBatch(test.database, account.id, { count: 3 });
    const chunk = { batchId, number: 0 };
    const activities = activitiesWith(rail);
    await attempt(() => activities.acceptChunk({ ...chunk, workflowAgeMs: 0 }));
    if (isSubmitted) await attempt(() => activities.submitChunk(chunk));
    const [first] = await rowsOf(batchId);
    await test.database.unsafe(`
      create or replace function break_one() returns trigger language plpgsql as $$
      begin raise exception 'a bug'; end $$;
      create trigger breaks_${first?.id} before update of status on payouts
        for each row when (new.id = '${first?.id}') execute function break_one()`);
    return { batchId, chunk, activities };
  }

  const statusesOf = async (batchId: string) => (await rowsOf(batchId)).map(({ status }) => status);

  it('does not keep the others from being settled by a poll', async () => {
    const rail = new QuietRail({ settlesAfterLookups: 0 });
    const { batchId, chunk, activities } = await brokenChunk(rail, true);
    await attempt(() => activities.pollChunk(chunk)).catch(() => undefined);
    expect(await statusesOf(batchId)).toEqual(['sent', 'settled', 'settled']);
  });

  it('does not keep the others from being canceled', async () => {
    const { batchId, chunk, activities } = await brokenChunk(new QuietRail(), false);
    await test.database`update batches set canceled_at = now() where id = ${batchId}`;
    await attempt(() => activities.cancelChunk(chunk)).catch(() => undefined);
    await attempt(() => activities.submitChunk(chunk)).catch(() => undefined);
    expect(await statusesOf(batchId)).toEqual(['processing', 'canceled', 'canceled']);
  });
});

it('chunks that wait for the bank leave room for the steps of other batches', async () => {
  const { account } = await createTestAccount(test.database, { funds: { USD: 1_000_000n } });
  const batchId = await requestBatch(test.database, account.id, { count: 1 });
  const chunk = { batchId, number: 0 };
  const activities = activitiesWith(new QuietRail());
  await attempt(() => activities.acceptChunk({ ...chunk, workflowAgeMs: 0 }));
  await attempt(() => activities.submitChunk(chunk));
  // A worker of the batch lane runs 100 activities at once.
  const waiting = Array.from({ length: 80 }, () =>
    attempt(() => activities.applyChunkEvents(chunk)),
  );
  const next = attempt(() => activities.applyChunkEvents(chunk));
  const first = Promise.race(waiting.map((each) => each.then(() => 'one that waits')));
  await expect(Promise.race([next, first])).rejects.toThrow('Too many chunks wait');
  await Promise.all(waiting);
});

describe('a bug in the decision of a whole batch', () => {
  it('is retried without end, since nothing of the batch could be parked instead', async () => {
    const { account } = await createTestAccount(test.database, { funds: { USD: 1_000_000n } });
    const options = { count: 3, mode: 'all_or_nothing' } as const;
    const batchId = await requestBatch(test.database, account.id, options);
    await test.database.unsafe(`
      create function break_outcome() returns trigger language plpgsql as $$
      begin raise exception 'a bug'; end $$;
      create trigger breaks before update of outcome on batches
        for each row when (new.id = '${batchId}') execute function break_outcome()`);
    const activities = activitiesWith(new QuietRail());
    const decided = attempt(() => activities.decideBatch({ batchId, workflowAgeMs: 0 }), 1_000);
    await expect(decided).rejects.toThrow('a bug');
    await expect(decided).rejects.not.toMatchObject({ nonRetryable: true });
  });
});
