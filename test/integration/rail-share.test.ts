import { ApplicationFailure } from '@temporalio/common';
import { MockActivityEnvironment } from '@temporalio/testing';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { transaction } from '../../src/db/client.js';
import type { PayoutRow } from '../../src/db/payouts.js';
import type { Chunk } from '../../src/domain/batch.js';
import { eventually } from '../assertions/eventually.js';
import { ScriptedBank } from '../fakes/scriptedRail.js';
import { attempt, drowsy, Hold } from '../fixtures/attempt.js';
import { absentTemporal, activitiesOn } from '../fixtures/interleaving.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';

// A rail that does not answer for one account's payouts must still serve those of others.

let test: TestDatabase;
let bank: ScriptedBank;
/** Every call to the rail waits for this hold. */
let silence: Hold;
let worker: ReturnType<typeof activitiesOn>;

beforeAll(async () => {
  test = await createTestDatabase();
});
beforeEach(() => {
  bank = new ScriptedBank();
  silence = new Hold();
  worker = activitiesOn(test.worker, bank.rail({ hold: silence.wait }), absentTemporal());
});
afterAll(() => test.drop());

async function openAccount(): Promise<string> {
  const funds = { USD: 100_000_000n };
  return (await createTestAccount(test.database, { funds })).account.id;
}

/** Accepted payouts of an account that are not at the rail yet; returns their IDs. */
async function accepted(accountId: string, count: number): Promise<readonly string[]> {
  const rows: PayoutRow[] = [];
  for (let made = 0; made < count; made += 1) {
    rows.push(await requestPayout(test.database, accountId));
  }
  for (const { id } of rows) {
    await attempt(() => worker.decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 }));
  }
  return rows.map(({ id }) => id);
}

const submit = (id: string) => attempt(() => worker.submitPayouts({ driver: id, ids: [id] }));
const poll = (id: string) => attempt(() => worker.pollRail({ payoutId: id }));

/** Begins an attempt for each payout, and waits until each is at the rail or refused. */
async function begin(ids: readonly string[], call: (id: string) => Promise<unknown>) {
  const before = bank.asked.length;
  const refused = new Map<string, unknown>();
  const ends = ids.map((id) => call(id).catch((error: unknown) => refused.set(id, error)));
  await eventually('each is at the rail or refused', 20_000, () =>
    bank.asked.length - before + refused.size === ids.length ? true : undefined,
  );
  return { refused, ended: () => Promise.all(ends) };
}

it('at most 16 submissions of an account are at the rail, and the others are unchanged', async () => {
  const [account, other] = [await openAccount(), await openAccount()];
  const flood = await begin(await accepted(account, 18), submit);
  expect(bank.asked).toHaveLength(16);
  expect(flood.refused.size).toBe(2);
  for (const [id, error] of flood.refused) {
    expect(error).toBeInstanceOf(ApplicationFailure);
    expect(error).toMatchObject({ type: 'NotYet', category: 'BENIGN' });
    // About a second at first, with jitter.
    const delayMs = error instanceof ApplicationFailure ? Number(error.nextRetryDelay) : Number.NaN;
    expect(delayMs).toBeGreaterThanOrEqual(500);
    expect(delayMs).toBeLessThanOrEqual(1_500);
    // The retry is scheduled, so the sweep must not act on the payout before.
    const [row] = await test.database`
      select status, submit_started_at, attention_at, wake_at > now() + interval '15 s' as is_quiet
        from payouts where id = ${id}`;
    expect(row).toMatchObject({
      ...{ status: 'processing', submitStartedAt: null, attentionAt: null, isQuiet: true },
    });
  }

  const victim = await begin(await accepted(other, 1), submit);
  expect(victim.refused.size).toBe(0);
  expect(bank.asked).toHaveLength(17);

  silence.open();
  await Promise.all([flood.ended(), victim.ended()]);
  for (const id of flood.refused.keys()) {
    expect(await submit(id)).toMatchObject([{ id, status: 'sent', attention: null }]);
  }
  expect(bank.asked).toHaveLength(19);
});

it('at most 16 polls of an account are at the rail', async () => {
  const [account, other] = [await openAccount(), await openAccount()];
  const ids = await accepted(account, 17);
  const [otherId = ''] = await accepted(other, 1);
  silence.open();
  for (const id of [...ids, otherId]) await submit(id);
  silence = new Hold();
  worker = activitiesOn(test.worker, bank.rail({ hold: silence.wait }), absentTemporal());
  const before = bank.asked.length;
  const flood = await begin(ids, poll);
  expect(bank.asked).toHaveLength(before + 16);
  expect(flood.refused.size).toBe(1);
  const victim = await begin([otherId], poll);
  expect(victim.refused.size).toBe(0);
  expect(bank.asked).toHaveLength(before + 17);
  silence.open();
  await Promise.all([flood.ended(), victim.ended()]);
});

it('single payouts take no slot from the batches of the same account', async () => {
  const account = await openAccount();
  const batchId = await transaction(test.database, (sql) =>
    requestBatch(sql, account, { count: 1 }),
  );
  const chunk: Chunk = { batchId, number: 0 };
  const flood = await begin(await accepted(account, 17), submit);
  expect(flood.refused.size).toBe(1);
  await attempt(() => worker.acceptChunk({ ...chunk, workflowAgeMs: 0 }));
  const sending = attempt(() => worker.submitChunk(chunk));
  await eventually('the batch is at the rail', 20_000, () =>
    bank.asked.length === 17 ? true : undefined,
  );
  silence.open();
  expect(await sending).toMatchObject({ sent: 1 });
  await flood.ended();
});

it('a submission in a workflow task begins with the first statement', async () => {
  const [id = ''] = await accepted(await openAccount(), 1);
  const hold = new Hold();
  const local = activitiesOn(drowsy(test.worker, 1, hold), bank.rail(), absentTemporal());
  const task = new MockActivityEnvironment({ isLocal: true });
  const sending = task.run(() => local.submitPayouts({ driver: id, ids: [id] }));
  await hold.reached;
  const [row] = await test.database`
    select submit_started_at is not null as is_begun from payouts where id = ${id}`;
  expect(row).toEqual({ isBegun: true });
  hold.open();
  expect(await sending).toMatchObject([{ id, status: 'sent' }]);
});
