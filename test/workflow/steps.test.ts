import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { exactlyOne } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { recordAction } from '../../src/db/operatorActions.js';
import { type PayoutRow, requestCancellation } from '../../src/db/payouts.js';
import { storeRailEvents } from '../../src/db/railInbox.js';
import { beginSubmission } from '../../src/db/submissions.js';
import { insertWebhookEndpoint } from '../../src/db/webhookEndpoints.js';
import type { OperatorCommand } from '../../src/domain/operator.js';
import { statusHistory } from '../../src/domain/payout.js';
import type { Rail } from '../../src/rails/rail.js';
import { eventually } from '../assertions/eventually.js';
import { postingsOf } from '../assertions/postings.js';
import { QuietRail } from '../fakes/quietRail.js';
import { attempt } from '../fixtures/attempt.js';
import { keyring } from '../fixtures/keyring.js';
import { requested, signature } from '../fixtures/operators.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { payoutOf, requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  unbalancedCurrencies,
} from '../servers/database.js';

let test: TestDatabase;

beforeAll(async () => {
  test = await createTestDatabase();
  await test.database.unsafe(`
    create function refuse() returns trigger language plpgsql as
      $$ begin raise exception 'the test refuses'; end $$`);
});
afterAll(async () => {
  expect(await unbalancedCurrencies(test.database)).toEqual([]);
  await test.drop();
});

/** The activities as a worker calls them, with one attempt per call. */
const activitiesWith = (rail: Rail, approvalAboveMinor?: bigint) =>
  payoutActivities(test.worker, rail, approvalAboveMinor);

/** The limits that every rail in these tests declares. */
const limits = [{ rail: 'sandbox', settleWithinMs: 5 * 24 * 60 * 60 * 1000 }];

/** A payout that is accepted but not submitted yet; a webhook endpoint subscribes to its account. */
async function accepted(activities: ReturnType<typeof activitiesWith>): Promise<PayoutRow> {
  const { account } = await createTestAccount(test.database);
  await insertWebhookEndpoint(test.database, keyring, {
    id: newId('webhookEndpoint'),
    accountId: account.id,
    url: 'https://example.com/webhooks',
    events: ['*'],
    secret: 'whsec_dGVzdA==',
    apiVersion: '2026-06-01',
  });
  const { id } = await requestPayout(test.database, account.id);
  await activities.decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 });
  const row = await payoutOf(test.database, account.id, id);
  expect(row).toMatchObject({ status: 'processing', submitStartedAt: null });
  return row;
}

/** Everything that a step may have written, except the call to the rail. */
async function tracesOf({ id, accountId }: PayoutRow) {
  const row = await payoutOf(test.database, accountId, id);
  const { status, attentionReason } = row;
  const [counts] = await test.database`
    select (select count(*)::int from events where subject_id = ${id}) as events,
           (select count(*)::int from deliveries d join events e on e.id = d.event_id
             where e.subject_id = ${id}) as deliveries,
           (select cardinality(applied_facts) from payouts where id = ${id}) as applied,
           (select count(*)::int from operator_actions where subject_id = ${id}) as audited,
           (select event_sequence::int from accounts where id = ${accountId}) as sequence`;
  const postings = await postingsOf(test.database, id);
  return { status, passed: statusHistory(row).length, attentionReason, postings, ...counts };
}

describe('a failed step leaves no trace and succeeds when it is repeated: it fails at', () => {
  const places = {
    'a posting': 'before insert on ledger_entries',
    'the mark that the fact is applied': 'before update of applied_facts on payouts',
    'an event': 'before insert on events',
    'a delivery': 'before insert on deliveries',
    'the audit line': 'before insert on operator_actions',
    'the commit': 'after update on payouts deferrable initially deferred',
  } as const;

  it.each(Object.entries(places))('%s', async (_place, place) => {
    const { database } = test;
    const activities = activitiesWith(new QuietRail());
    const row = await accepted(activities);
    const { id } = row;
    await attempt(() => activities.submitPayouts({ driver: id, ids: [id] }));
    const amountMinor = row.receiveMinor ?? 0n;
    const report = { kind: 'settled', amountMinor, currency: 'EUR' } as const;
    await storeRailEvents(database, 'sandbox', [{ id: `test:${id}`, key: id, report }]);
    await activities.parkPayout({ driver: id, id, reason: 'settle_by_passed', detail: 'a test' });
    const before = await tracesOf(row);
    // This one step writes to every table involved: it settles by the inbox, and is audited.
    const command = { kind: 'markSettled', evidence: 'MT940, line 7' } as const;
    const input = await requested(test, id, command);
    const step = () => attempt(() => activities.executeCommand(input));
    const kind = place.startsWith('after') ? 'constraint trigger' : 'trigger';
    await database.unsafe(`create ${kind} refusal ${place} for each row execute function refuse()`);
    await expect(step()).rejects.toThrow('the test refuses');
    expect(await tracesOf(row)).toEqual(before);
    await database.unsafe(`drop trigger refusal on ${/ on (\w+)/.exec(place)?.[1]}`);
    await step();
    expect(await tracesOf(row)).toMatchObject({
      status: 'settled',
      attentionReason: null,
      events: 2,
      deliveries: 2,
      applied: 1,
      audited: 1,
      sequence: 2,
    });
  });
});

/** A rail that never answers and records every key that it receives. */
class SilentRail extends QuietRail {
  readonly keys: string[] = [];

  override readonly submit: Rail['submit'] = async (transfers) => {
    this.keys.push(...transfers.map(({ key }) => key));
    return transfers.map(({ key }) => ({ key, kind: 'unknown', detail: 'no answer' }));
  };
}

it('a payout whose outcome is unknown stays held, and is sent again with the same key', async () => {
  const rail = new SilentRail();
  const activities = activitiesWith(rail);
  const row = await accepted(activities);
  const { id } = row;
  const before = await tracesOf(row);
  for (const sent of [1, 2, 3]) {
    const submitted = attempt(() => activities.submitPayouts({ driver: id, ids: [id] }));
    await Promise.allSettled([submitted]);
    expect(await tracesOf(row)).toEqual(before);
    await expect(submitted).rejects.toThrow('answer is unknown');
    expect(rail.keys).toEqual(Array.from({ length: sent }, () => id));
  }
  await expect(attempt(() => activities.pollRail({ payoutId: id }))).rejects.toThrow('not_found');
  expect(await tracesOf(row)).toEqual(before);
});

it('no operator approves their own proposal: both the worker and the database refuse it', async () => {
  const activities = activitiesWith(new QuietRail(), 0n);
  const row = await accepted(activities);
  const { id } = row;
  await attempt(() => activities.submitPayouts({ driver: id, ids: [id] }));
  await activities.parkPayout({ driver: id, id, reason: 'settle_by_passed', detail: 'a test' });
  const request = async (command: OperatorCommand, operator?: string) => {
    const input = await requested(test, id, command, operator);
    return { input, run: () => attempt(() => activities.executeCommand(input)) };
  };
  const proposed = await request({ kind: 'markSettled', evidence: 'MT940, line 7' });
  expect((await proposed.run()).result).toMatchObject({ outcome: 'proposed' });
  const before = await tracesOf(row);
  const approves = proposed.input.action;
  const approve = { kind: 'approve', proposal: approves } as const;
  const own = await request(approve);
  const forged = recordAction(test.worker, {
    ...{ id: own.input.action, subjectId: id, actorKind: 'operator', ...signature },
    ...{ command: approve, outcome: 'done', detail: '', approves },
  });
  const refusal = await forged.then(() => 'it was recorded', String);
  expect(refusal).toContain('approves no proposal of another person');
  expect(await tracesOf(row)).toEqual(before);
  const answer = await own.run().then(({ result }) => result.detail, String);
  expect(answer).toContain('You proposed this yourself');
  expect(await tracesOf(row)).toMatchObject({ ...before, audited: 2 });
  const other = await request(approve, 'barbara');
  expect((await other.run()).result).toMatchObject({ outcome: 'done' });
  expect(await tracesOf(row)).toMatchObject({ status: 'settled', audited: 3 });
});

it('a cancellation that was checked before the submission began is checked again', async () => {
  const { database } = test;
  const activities = activitiesWith(new QuietRail());
  const row = await accepted(activities);
  const { id } = row;
  await requestCancellation(database, id);
  const cancel = () =>
    attempt(() =>
      activities.executeCommand({ driver: id, id, actor: 'customer', action: `op_${id}` }),
    );
  const before = await tracesOf(row);
  let canceled: Promise<unknown> = Promise.resolve();
  await database.begin(async (submission) => {
    await database.begin(async (gate) => {
      // Stops the cancellation after it has read that the rail has not been called.
      await gate`lock table operator_actions in access exclusive mode`;
      canceled = cancel();
      canceled.catch(() => undefined);
      await untilWaiting('operator_actions');
      expect(
        await beginSubmission(submission, { driver: id, ids: [id], wakeInMs: 60_000 }, limits),
      ).toHaveLength(1);
    });
    // Released, it waits for the row, which the submission has written but not committed.
    await untilWaiting('lost as materialized|update payouts');
  });
  await Promise.allSettled([canceled]);
  expect(await tracesOf(row)).toEqual(before);
  await expect(canceled).rejects.toThrow('was sent or its case changed meanwhile');
});

it('a command that is repeated after a crash returns the first result and has no second effect', async () => {
  const activities = activitiesWith(new QuietRail());
  const row = await accepted(activities);
  const { id } = row;
  await attempt(() => activities.submitPayouts({ driver: id, ids: [id] }));
  await activities.parkPayout({ driver: id, id, reason: 'settle_by_passed', detail: 'a test' });
  const input = await requested(test, id, { kind: 'markSettled', evidence: 'MT940, line 7' });
  const step = () => attempt(() => activities.executeCommand(input));
  const first = await step();
  expect(first.result).toMatchObject({ outcome: 'done' });
  const after = await tracesOf(row);
  // As if the worker had died after the commit, before it could answer.
  expect((await step()).result).toEqual(first.result);
  expect(await tracesOf(row)).toEqual(after);
});

/** Waits until a statement with this text in its first kilobyte waits for a lock in the test's database. */
async function untilWaiting(text: string): Promise<void> {
  await eventually(`a statement with ${text} waits for a lock`, 10_000, async () => {
    const [row] = await test.database<{ waiting: number }[]>`
      select count(*)::int as waiting from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock'
         and query ~ ${text}`;
    return exactlyOne(row).waiting > 0 ? true : undefined;
  });
}
