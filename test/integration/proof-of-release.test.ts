import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { accept } from '../../src/activities/acceptance.js';
import type { OperateInput } from '../../src/activities/operator.js';
import { readStatements } from '../../src/activities/statements.js';
import { showPayout } from '../../src/cli/showPayout.js';
import { cancelBatch, findBatchById, pauseBatch, resumeBatch } from '../../src/db/batches.js';
import { handOverItems, takeOver } from '../../src/db/chunks.js';
import { exactlyOne, isOutage, transaction } from '../../src/db/client.js';
import { insertRequest } from '../../src/db/operatorActions.js';
import {
  claimOverduePayouts,
  findPayoutById,
  type PayoutRow,
  postponeWaiting,
  readPayouts,
  requestCancellation,
} from '../../src/db/payouts.js';
import { storeRailEvents } from '../../src/db/railInbox.js';
import { type BatchMode, chunkDriver } from '../../src/domain/batch.js';
import type { OperatorCommand } from '../../src/domain/operator.js';
import type { AttentionReason } from '../../src/domain/payout.js';
import type { RailEvent, RailReport } from '../../src/domain/railReport.js';
import { createRails } from '../../src/rails/registry.js';
import { eventually } from '../assertions/eventually.js';
import { postingsOf } from '../assertions/postings.js';
import { type Manners, ScriptedBank } from '../fakes/scriptedRail.js';
import { createVirtualTime, type VirtualTime } from '../fakes/virtualClock.js';
import { attempt, drowsy, Hold } from '../fixtures/attempt.js';
import { absentTemporal, activitiesOn } from '../fixtures/interleaving.js';
import { called, shown, signedBy } from '../fixtures/operators.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { rateMaximumAgeMs, requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  storeReferenceRates,
  unbalancedCurrencies,
  untilLockWaits,
  withoutTriggers,
} from '../servers/database.js';

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;

let time: VirtualTime;
/** Each test has a separate bank, which never forgets keys unless the test is about that. */
let bank: ScriptedBank;

beforeAll(async () => {
  time = await createVirtualTime();
});
beforeEach(async () => {
  await time.beginAnew();
  bank = new ScriptedBank();
});
afterAll(async () => {
  expect(await unbalancedCurrencies(time.database)).toEqual([]);
  await time.drop();
});

const temporal = absentTemporal();

function activities(manners: Manners = {}, database = time.worker) {
  return activitiesOn(database, bank.rail(manners), temporal);
}

/** An undecided payout of 1,250.00 USD; returns its ID. */
async function requested(): Promise<string> {
  const { account } = await createTestAccount(time.database);
  return (await requestPayout(time.database, account.id)).id;
}

/** An accepted payout that has not been submitted to the bank. */
async function accepted(): Promise<string> {
  const id = await requested();
  await attempt(() => activities().decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 }));
  return id;
}

/** Makes one attempt to submit a payout; it does not matter if the attempt has to be retried. */
async function submit(id: string, manners: Manners = {}): Promise<void> {
  const { driver } = await rowOf(id);
  await attempt(() => activities(manners).submitPayouts({ driver, ids: [id] })).catch(
    (error: unknown) => {
      if (!/unknown|broke|cannot be read/.test(String(error))) throw error;
    },
  );
}

/** A payout that the bank has accepted and not paid yet. */
async function sent(): Promise<string> {
  const id = await accepted();
  await submit(id);
  expect(await rowOf(id)).toMatchObject({ status: 'sent' });
  return id;
}

async function rowOf(id: string): Promise<PayoutRow> {
  return exactlyOne(await findPayoutById(time.database, id));
}

async function wait(ms: number): Promise<void> {
  await time.advance(ms);
  bank.pass();
}

/** The bank reports about a payout, and its workflow processes the inbox. */
async function report(id: string, ...reports: readonly RailReport[]): Promise<void> {
  // One after another, as callbacks arrive.
  for (const report of reports) {
    await storeRailEvents(time.database, 'sandbox', [railEvent(id, report)]);
  }
  await settle(id);
}

function railEvent(id: string, report: RailReport): RailEvent {
  return { id: crypto.randomUUID(), key: id, report };
}

async function settle(id: string): Promise<void> {
  const { driver } = await rowOf(id);
  await attempt(() => activities().applyRailEvents({ driver, ids: [id] }));
}

/** Delivers all reports about everything that the bank has done. */
async function deliverReports(): Promise<void> {
  const events = bank.takeAll();
  await storeRailEvents(time.database, 'sandbox', events);
  for (const id of new Set(events.map(({ key }) => key))) await settle(id);
}

async function settledReport(id: string, moreMinor = 0n) {
  const { receiveMinor, destinationCurrency } = await rowOf(id);
  const currency = destinationCurrency ?? '';
  return { kind: 'settled', amountMinor: (receiveMinor ?? 0n) + moreMinor, currency } as const;
}

const rejectedReport = { kind: 'rejected', code: 'AC04', reason: 'closed' } as const;

async function park(id: string, reason: AttentionReason): Promise<void> {
  const { driver } = await rowOf(id);
  await attempt(() => activities().parkPayout({ driver, id, reason, detail: `a test: ${reason}` }));
}

const noop = async () => undefined;

let actions = 0;

async function inputOf(id: string, command: OperatorCommand): Promise<OperateInput> {
  if (command.kind === 'cancel') {
    actions += 1;
    await requestCancellation(time.database, id);
    return { driver: id, id, actor: 'customer', action: `op_test_${actions}` };
  }
  const action = await insertRequest(time.database, id, signedBy(), command);
  return { driver: id, id, actor: 'operator', action };
}

async function execute(pending: OperateInput | Promise<OperateInput>, manners: Manners = {}) {
  const input = await pending;
  return (await attempt(() => activities(manners).executeCommand(input))).result;
}

const cancel = { kind: 'cancel' } as const;
const release = (statementDate: string | null = null): OperatorCommand => ({
  kind: 'failAndRelease',
  statementDate,
});

const dayAt = (ms: number) => new Date(ms).toISOString().slice(0, 10);

/** Verifies that the hold remains: nothing was released, whatever the payout waits for. */
async function expectHeld(id: string, status: PayoutRow['status']): Promise<void> {
  expect(await rowOf(id)).toMatchObject({ status });
  expect(Object.keys(await postingsOf(time.database, id))).toEqual(['accept']);
}

async function expectEnd(id: string, status: PayoutRow['status'], entries: readonly string[]) {
  expect(await rowOf(id)).toMatchObject({ status });
  expect(Object.keys(await postingsOf(time.database, id)).sort()).toEqual([...entries].sort());
}

const released = ['accept', 'release'];
const settled = ['accept', 'settle'];

/** The time that the bank has left, as returned to the workflow by a step. */
async function settleInMs(id: string): Promise<number> {
  const [row] = await readPayouts(time.database, null, [id]);
  return Number(row?.settleInMs ?? 0n);
}

/** The undecided items of a batch, 10.00 USD each. */
async function requestedItems(count: number, mode: BatchMode = 'best_effort') {
  const { account } = await createTestAccount(time.database);
  const batchId = await requestBatch(time.database, account.id, { count, mode });
  const items = await time.database<{ id: string }[]>`
    select id from payouts where batch_id = ${batchId} order by batch_index`;
  return { chunk: { batchId, number: 0 }, ids: items.map(({ id }) => id) };
}

/** The accepted items of a batch, which are not at the bank yet. */
async function acceptedItems(count: number) {
  const items = await requestedItems(count);
  await attempt(() => activities().acceptChunk({ ...items.chunk, workflowAgeMs: 0 }));
  return items;
}

it('an all-or-nothing batch whose decision the database has lost is decided again', async () => {
  // Its workflow has had it decided, and goes on with the chunks.
  const { chunk, ids } = await requestedItems(2, 'all_or_nothing');
  await attempt(() => activities().acceptChunk({ ...chunk, workflowAgeMs: 0 }));
  for (const id of ids) await expectHeld(id, 'processing');
  const outcome = async () => (await findBatchById(time.database, chunk.batchId))?.outcome;
  expect(await outcome()).toBe('accepted');
  // It is not refused then, whatever would refuse it now: the bank may have paid what it was given.
  const late = await requestedItems(2, 'all_or_nothing');
  await time.database`update accounts set state = 'frozen' where id = (
    select account_id from batches where id = ${late.chunk.batchId})`;
  await attempt(() => activities().acceptChunk({ ...late.chunk, workflowAgeMs: 0 }));
  for (const id of late.ids) expect(await rowOf(id)).toMatchObject({ status: 'pending' });
  await attempt(() => activities().decideBatch({ batchId: late.chunk.batchId, workflowAgeMs: 0 }));
  for (const id of late.ids) expect(await rowOf(id)).toMatchObject({ status: 'failed' });
  const canceled = await requestedItems(2, 'all_or_nothing');
  await cancelBatch(time.database, canceled.chunk.batchId);
  await attempt(() => activities().acceptChunk({ ...canceled.chunk, workflowAgeMs: 0 }));
  for (const id of canceled.ids) expect(await rowOf(id)).toMatchObject({ status: 'canceled' });
});

it('the sweep leaves a payout of a paused batch to its own activity', async () => {
  const { chunk, ids } = await acceptedItems(1);
  const id = exactlyOne(ids[0]);
  await pauseBatch(time.database, chunk.batchId);
  await takeOver(time.database, id);
  const submission = attempt(() => activities().submitPayouts({ driver: id, ids: [id] }), 9);
  await expect(submission).rejects.toThrow('Its batch is paused');
  await wait(minuteMs);
  expect(await claimOverduePayouts(time.database)).toEqual([]);
});

describe('the bank’s time limit counts from the last submission', () => {
  beforeEach(() => {
    bank = new ScriptedBank({ keyRetentionMs: 365 * dayMs });
  });

  it('of an item whose batch was paused: its earlier due date proves nothing', async () => {
    const { chunk, ids } = await acceptedItems(1);
    const id = exactlyOne(ids[0]);
    const { batchId } = chunk;
    const dueAtFirst = dayAt(Date.now() + bank.limits.settleWithinMs);
    await pauseBatch(time.database, batchId);
    await wait(8 * dayMs);
    await resumeBatch(time.database, batchId);
    await attempt(() => activities().submitPayouts({ driver: chunkDriver(chunk), ids: [id] }));
    expect(await rowOf(id)).toMatchObject({ status: 'sent', attentionReason: null });
    expect(await settleInMs(id)).toBeGreaterThanOrEqual(bank.limits.settleWithinMs);

    await time.database`update payouts set driver = id where id = ${id}`;
    await park(id, 'settle_by_passed');
    expect(await execute(inputOf(id, release(dueAtFirst)))).toMatchObject({ outcome: 'refused' });
    await expectHeld(id, 'sent');
    await wait(bank.limits.settleWithinMs);
    await deliverReports();
    expect(bank.paymentsOf(id)).toHaveLength(1);
    await expectEnd(id, 'settled', settled);
  });

  it('of a payout that was sent again 22 hours after the first attempt', async () => {
    const id = await accepted();
    const firstDeadline = dayAt(Date.now() + bank.limits.settleWithinMs);
    await submit(id, { submit: 'dropped' });
    await wait(22 * hourMs);
    await submit(id, { submit: 'unsaid' });
    expect(await settleInMs(id)).toBeGreaterThanOrEqual(bank.limits.settleWithinMs);
    // The day of the first deadline is over and closed, and the bank pays ten hours later.
    await wait(4 * dayMs + 15 * hourMs);
    await park(id, 'outcome_unknown');
    expect(await execute(inputOf(id, release(firstDeadline)))).toMatchObject({
      outcome: 'refused',
    });
    await expectHeld(id, 'processing');
    await wait(dayMs);
    await deliverReports();
    expect(bank.paymentsOf(id)).toHaveLength(1);
    await expectEnd(id, 'settled', settled);
  });

  it('even if the answer to the last submission was lost', async () => {
    const id = await accepted();
    await submit(id, { submit: 'dropped' });
    await wait(20 * hourMs);
    await submit(id, { submit: 'lost' });
    expect(await settleInMs(id)).toBeGreaterThanOrEqual(bank.limits.settleWithinMs);
  });
});

describe('a batch that is canceled while its orders have no answer', () => {
  it('has the orders voided that the bank does not have, and sends none', async () => {
    const { chunk, ids } = await acceptedItems(3);
    const [taken = '', ...others] = ids;
    const driver = chunkDriver(chunk);
    for (const [manner, group] of [['lost', [taken]] as const, ['dropped', others] as const]) {
      const send = activities({ submit: manner }).submitPayouts;
      await attempt(() => send({ driver, ids: group })).catch(() => undefined);
    }
    await cancelBatch(time.database, chunk.batchId);
    await attempt(() => activities().cancelChunk(chunk));
    // The first attempt finds that the bank does not have them, the second one voids their keys.
    for (const _attempt of [1, 2]) await attempt(() => activities().submitChunk(chunk));
    await expectHeld(taken, 'sent');
    for (const id of others) {
      await expectEnd(id, 'canceled', released);
      expect(await rowOf(id)).toMatchObject({ statusReason: 'canceled' });
    }
    await wait(6 * dayMs);
    expect(ids.map((id) => bank.paymentsOf(id).length)).toEqual([1, 0, 0]);
  });
});

it('a bank that refuses connections is not taken for an outage of the database', async () => {
  await accepted();
  const refusal = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
  const rail = { ...bank.rail(), statement: () => Promise.reject(refusal) };
  const failure = await readStatements(time.database, rail).catch((error: unknown) => error);
  expect(failure).toMatchObject({ message: 'connect ECONNREFUSED' });
  expect([isOutage(refusal), isOutage(failure)]).toEqual([true, false]);
});

describe('closed statements prove that a payout was not paid', () => {
  beforeEach(() => {
    bank = new ScriptedBank({ keyRetentionMs: 365 * dayMs });
  });

  /** A payout that the bank has accepted and never reports on. */
  async function silent(fate: 'pays' | 'dies'): Promise<{ id: string; deadline: string }> {
    const id = await accepted();
    bank.fates.set(id, fate);
    await submit(id);
    const deadline = dayAt(Date.now() + bank.limits.settleWithinMs);
    await wait(bank.limits.settleWithinMs + 2 * dayMs);
    await park(id, 'settle_by_passed');
    return { id, deadline };
  }

  it('if they reach past the deadline and show no payment', async () => {
    const { id, deadline } = await silent('dies');
    expect(await execute(inputOf(id, release(deadline)))).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'failed', released);
  });

  it('but not for a day on which the bank could still have paid', async () => {
    const { id, deadline } = await silent('dies');
    const eve = dayAt(Date.parse(deadline) - dayMs);
    expect(await execute(inputOf(id, release(eve)))).toMatchObject({ outcome: 'refused' });
    await expectHeld(id, 'sent');
  });

  it('even if a later day cannot be read, which is named if a day is missing', async () => {
    const { id, deadline } = await silent('dies');
    const rail = bank.rail();
    const statement = async (date: string) => {
      if (date > deadline) throw new Error(`${date} cannot be read`);
      return rail.statement(date);
    };
    const { executeCommand } = activitiesOn(time.worker, { ...rail, statement }, temporal);
    const run = async (until: string) => {
      const input = await inputOf(id, release(until));
      return (await attempt(() => executeCommand(input))).result;
    };
    const next = dayAt(Date.parse(deadline) + dayMs);
    expect(await run(next)).toMatchObject({
      outcome: 'refused',
      detail: expect.stringMatching(`1 of the days up to ${next} .* ${next} cannot be read$`),
    });
    expect(await run(deadline)).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'failed', released);
  });

  it('but not if one of the days is still open', async () => {
    bank = new ScriptedBank({ keyRetentionMs: 365 * dayMs, closesAfterMs: 10 * dayMs });
    const { id, deadline } = await silent('dies');
    expect(await execute(inputOf(id, release(deadline)))).toMatchObject({ outcome: 'refused' });
    await expectHeld(id, 'sent');
  });

  it('but not if they show a debit of that amount without a key', async () => {
    const other = await accepted();
    bank.fates.set(other, 'dies');
    await submit(other);
    const id = await accepted();
    bank.garbled.add(id);
    await submit(id);
    const deadline = dayAt(Date.now() + bank.limits.settleWithinMs);
    await wait(bank.limits.settleWithinMs + 2 * dayMs);
    expect(bank.paymentsOf(id)).toHaveLength(1);
    for (const each of [id, other]) {
      await park(each, 'settle_by_passed');
      expect(await execute(inputOf(each, release(deadline)))).toMatchObject({ outcome: 'refused' });
    }
    await expectHeld(id, 'sent');
    await expectHeld(other, 'sent');
  });

  it('but not if they show a debit of that amount for an order that is already paid', async () => {
    // By then the bank has forgotten the key, and only the statement is left as evidence.
    bank = new ScriptedBank();
    const other = await sent();
    bank.act(other, 'pays');
    await deliverReports();
    const id = await accepted();
    bank.bookedAs.set(id, other);
    await submit(id);
    const deadline = dayAt(Date.now() + bank.limits.settleWithinMs);
    await wait(bank.limits.settleWithinMs + 2 * dayMs);
    expect(bank.paymentsOf(id)).toHaveLength(1);
    await park(id, 'settle_by_passed');
    expect(await execute(inputOf(id, release(deadline)))).toMatchObject({ outcome: 'refused' });
    await expectHeld(id, 'sent');
  });

  it('even if another order of that amount was paid, once', async () => {
    const other = await sent();
    bank.act(other, 'pays');
    await deliverReports();
    const { id, deadline } = await silent('dies');
    expect(bank.paymentsOf(other)).toHaveLength(1);
    expect(await execute(inputOf(id, release(deadline)))).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'failed', released);
  });

  it('once the bank has closed a day that was open while later days were closed', async () => {
    const id = await accepted();
    bank.fates.set(id, 'dies');
    await submit(id);
    const deadline = dayAt(Date.now() + bank.limits.settleWithinMs);
    bank.leftOpen.add(dayAt(Date.now() + dayMs));
    await wait(bank.limits.settleWithinMs + 2 * dayMs);
    await park(id, 'settle_by_passed');
    expect(await execute(inputOf(id, release(deadline)))).toMatchObject({ outcome: 'refused' });
    bank.leftOpen.clear();
    expect(await execute(inputOf(id, release(deadline)))).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'failed', released);
  });

  it('even if they show a debit of another amount without a key', async () => {
    const { ids } = await acceptedItems(1);
    const small = exactlyOne(ids[0]);
    bank.garbled.add(small);
    await submit(small);
    const { id, deadline } = await silent('dies');
    expect(bank.paymentsOf(small)).toHaveLength(1);
    expect(await execute(inputOf(id, release(deadline)))).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'failed', released);
  });
});

describe('a void proves that a payout was not paid', () => {
  it('while the bank remembers keys and does not have this one', async () => {
    const id = await accepted();
    await submit(id, { submit: 'dropped' });
    expect(await execute(inputOf(id, cancel))).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'canceled', released);
    await submit(id);
    await wait(6 * dayMs);
    expect(bank.paymentsOf(id)).toEqual([]);
  });

  it('but not for a cancellation after the bank has paid and forgotten the key', async () => {
    const id = await accepted();
    await submit(id, { submit: 'lost' });
    bank.act(id, 'pays');
    await wait(25 * hourMs);
    expect(await execute(inputOf(id, cancel))).toMatchObject({ outcome: 'refused' });
    await expectHeld(id, 'processing');
    await deliverReports();
    await expectEnd(id, 'settled', settled);
  });

  it('but not for a release after the bank has paid and forgotten the key', async () => {
    const id = await accepted();
    await submit(id, { submit: 'lost' });
    bank.act(id, 'pays');
    await wait(25 * hourMs);
    await submit(id);
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'outcome_unknown' });
    expect(await execute(inputOf(id, release()))).toMatchObject({ outcome: 'refused' });
    await expectHeld(id, 'processing');
    await deliverReports();
    await expectEnd(id, 'settled', settled);
  });

  it('but not for an order that the bank had accepted and has forgotten five days later', async () => {
    const id = await sent();
    await wait(bank.limits.settleWithinMs - hourMs);
    await park(id, 'settle_by_passed');
    expect(await execute(inputOf(id, release()))).toMatchObject({ outcome: 'refused' });
    await expectHeld(id, 'sent');
    await wait(hourMs);
    await deliverReports();
    await expectEnd(id, 'settled', settled);
  });

  it('but not if the process was suspended until the bank had forgotten the key', async () => {
    // Wherever the process is suspended, everything that it read before is outdated afterwards.
    for (let statements = 1; statements <= 6; statements += 1) {
      await time.beginAnew();
      const id = await accepted();
      await submit(id, { submit: 'lost' });
      const hold = new Hold();
      const suspended = activities({}, drowsy(time.worker, statements, hold));
      const input = await inputOf(id, cancel);
      const canceled = attempt(() => suspended.executeCommand(input)).catch(String);
      if ((await Promise.race([canceled, hold.reached])) !== 'held') break;
      bank.act(id, 'pays');
      await wait(25 * hourMs);
      hold.open();
      await canceled;
      expect(Object.keys(await postingsOf(time.database, id)), `${statements}`).not.toContain(
        'release',
      );
    }
  });
});

describe('facts that contradict each other', () => {
  it('release nothing: settled with another amount, then rejected', async () => {
    const id = await sent();
    await report(id, await settledReport(id, 1n));
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'amount_mismatch' });
    await report(id, rejectedReport);
    await expectHeld(id, 'sent');
    const { attentionReason, attentionDetail } = await rowOf(id);
    expect(attentionReason).toBe('amount_mismatch');
    // Both facts are shown to the operator who decides.
    expect(attentionDetail).toContain('settled');
    expect(attentionDetail).toContain('AC04');
  });

  it('release nothing if both are found at once', async () => {
    const id = await sent();
    await report(id, await settledReport(id, 1n), rejectedReport);
    await expectHeld(id, 'sent');
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'amount_mismatch' });
  });

  it('release nothing if the bank names the rejection first', async () => {
    const id = await sent();
    await report(id, rejectedReport, await settledReport(id));
    await expectEnd(id, 'settled', settled);
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'contradiction' });
  });

  it.each([
    ['a poll', (id: string) => attempt(() => activities().pollRail({ payoutId: id }))],
    ['a person', (id: string) => execute(inputOf(id, { kind: 'retryNow' }))],
  ])('release nothing if %s finds the payment before the rejection is read', async (_, look) => {
    const id = await sent();
    await park(id, 'settle_by_passed');
    await storeRailEvents(time.database, 'sandbox', [railEvent(id, rejectedReport)]);
    bank.act(id, 'pays');
    await look(id);
    await expectEnd(id, 'settled', settled);
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'contradiction' });
    const outcomes = await time.database`select outcome from rail_inbox where payout_id = ${id}`;
    expect(outcomes).toMatchObject([{ outcome: 'contradiction' }]);
  });

  it('are kept in the order in which the bank names them, however they are joined', async () => {
    const id = await sent();
    const reports = [await settledReport(id), rejectedReport, await settledReport(id, 1n)];
    const events = reports.map((each) => railEvent(id, each));
    await transaction(time.database, async (sql) => {
      await sql`set local enable_nestloop = off`;
      await sql`set local enable_mergejoin = off`;
      await storeRailEvents(sql, 'sandbox', events);
    });
    const stored = await time.database<{ railEventId: string }[]>`
      select rail_event_id from rail_inbox where payout_id = ${id} order by id`;
    expect(stored.map(({ railEventId }) => railEventId)).toEqual(events.map((event) => event.id));
  });

  it('release nothing if the rejection is the answer to a lookup', async () => {
    const id = await sent();
    await report(id, await settledReport(id, 1n));
    bank.act(id, 'rejects');
    await attempt(() => activities().pollRail({ payoutId: id })).catch(() => undefined);
    await expectHeld(id, 'sent');
  });

  it('release nothing if the lookup is answered before the inbox is read', async () => {
    const id = await sent();
    await storeRailEvents(time.database, 'sandbox', [railEvent(id, await settledReport(id, 1n))]);
    bank.act(id, 'rejects');
    await attempt(() => activities().pollRail({ payoutId: id })).catch(() => undefined);
    await expectHeld(id, 'sent');
    expect(await rowOf(id)).toMatchObject({ attentionReason: expect.any(String) });
  });

  it('release nothing if the payout was already parked as late', async () => {
    const id = await sent();
    await park(id, 'settle_by_passed');
    await report(id, await settledReport(id, 1n));
    await report(id, rejectedReport);
    await expectHeld(id, 'sent');
  });

  it('give nothing back: rejected after it was settled, and then returned', async () => {
    const id = await sent();
    await report(id, await settledReport(id));
    await report(id, rejectedReport);
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'contradiction' });
    const { amountMinor, currency } = await settledReport(id);
    const back = { kind: 'returned', amountMinor, currency, code: 'AC06', reason: 'x' } as const;
    await report(id, back);
    await expectEnd(id, 'settled', settled);
  });

  it('are not resolved by waiting: the bank’s next report proves as little', async () => {
    const id = await sent();
    await report(id, await settledReport(id, 1n));
    const until = new Date(Date.now() + 10 * dayMs).toISOString();
    for (const command of [{ kind: 'extendDeadline', until }, { kind: 'retryNow' }] as const) {
      const result = await execute(inputOf(id, command));
      expect(result, command.kind).toMatchObject({
        outcome: 'refused',
        detail: expect.stringContaining('neither another report nor more time proves anything'),
      });
    }
    bank.act(id, 'rejects');
    await deliverReports();
    await expectHeld(id, 'sent');
  });

  it('stay with a person if the rail only says that it has the order', async () => {
    const id = await accepted();
    await submit(id, { submit: 'lost' });
    await report(id, await settledReport(id, 1n));
    expect(await execute(inputOf(id, { kind: 'retryNow' }))).toMatchObject({ outcome: 'done' });
    expect(await rowOf(id)).toMatchObject({ status: 'sent', attentionReason: 'amount_mismatch' });
    bank.act(id, 'rejects');
    await deliverReports();
    await expectHeld(id, 'sent');
  });

  it('are resolved by a return that a person accepts as true', async () => {
    const id = await sent();
    await report(id, await settledReport(id, 1n));
    bank.act(id, 'pays');
    bank.act(id, 'returnsAll');
    await deliverReports();
    await expectHeld(id, 'sent');
    const settle = { kind: 'markSettled', evidence: 'MT103 seen' } as const;
    for (const command of [{ kind: 'retryNow' }, settle] as const) {
      expect(await execute(inputOf(id, command))).toMatchObject({ outcome: 'refused' });
    }
    expect(await execute(inputOf(id, release()))).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'returned', ['accept', 'return', 'settle']);
  });

  it('return a settled payout once a person accepts the return as true', async () => {
    const id = await sent();
    bank.act(id, 'pays');
    await deliverReports();
    await report(id, rejectedReport);
    bank.act(id, 'returnsAll');
    await deliverReports();
    await expectEnd(id, 'settled', settled);
    const settle = { kind: 'markSettled', evidence: 'MT103 seen' } as const;
    expect(await execute(inputOf(id, settle))).toMatchObject({ outcome: 'refused' });
    expect(await execute(inputOf(id, release()))).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'returned', ['accept', 'return', 'settle']);
  });

  it('are resolved by a person’s evidence, whatever the rail then reports', async () => {
    const id = await sent();
    await report(id, await settledReport(id, 1n));
    bank.act(id, 'rejects');
    const settle = { kind: 'markSettled', evidence: 'MT103 seen' } as const;
    expect(await execute(inputOf(id, settle))).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'settled', settled);
  });

  it.each([
    ['more than was sent', { amountMinor: 10n ** 9n, currency: 'EUR' }],
    ['another currency', { amountMinor: 100n, currency: 'USD' }],
  ])('can be ended by evidence that it paid if the rail returned %s', async (_, stated) => {
    const id = await sent();
    const back = { ...stated, kind: 'returned', code: 'AC04' } as const;
    await report(id, back);
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'amount_mismatch' });
    const lookup = async () => [{ ...back, key: id }];
    const steps = activitiesOn(time.worker, { ...bank.rail(), lookup }, temporal);
    const settle = { kind: 'markSettled', evidence: 'MT103 seen' } as const;
    for (const [command, outcome, detail] of [
      [release(), 'refused', 'use settle with evidence'],
      [settle, 'done', 'Settled on the evidence given.'],
    ] as const) {
      const input = await inputOf(id, command);
      const { result } = await attempt(() => steps.executeCommand(input));
      expect(result).toMatchObject({ outcome, detail: expect.stringContaining(detail) });
    }
    await expectEnd(id, 'settled', settled);
  });

  it('still include a short return after the rail reports a settlement', async () => {
    const id = await sent();
    bank.act(id, 'pays');
    const { amountMinor, currency } = await settledReport(id);
    const half = { kind: 'returned', amountMinor: amountMinor / 2n, currency } as const;
    await report(id, { ...half, code: 'AC06' });
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'return_short' });
    expect(await execute(inputOf(id, { kind: 'retryNow' }))).toMatchObject({ outcome: 'refused' });
    await expectHeld(id, 'sent');
  });

  it('cannot be settled by a person while the rail reports another amount', async () => {
    const id = await sent();
    await park(id, 'settle_by_passed');
    bank.act(id, 'paysMore');
    const settle = { kind: 'markSettled', evidence: 'MT103 seen' } as const;
    expect(await execute(inputOf(id, settle))).toMatchObject({
      outcome: 'refused',
      detail: expect.stringContaining('a different amount'),
    });
    await expectHeld(id, 'sent');
  });

  it('release nothing on statements that show a payment of another amount', async () => {
    const id = await sent();
    bank.garbled.add(id);
    bank.act(id, 'paysMore');
    await deliverReports();
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'amount_mismatch' });
    await wait(bank.limits.settleWithinMs + 3 * dayMs);
    const result = await execute(inputOf(id, release(dayAt(Date.now() - dayMs))));
    expect(result).toMatchObject({ outcome: 'refused' });
    await expectHeld(id, 'sent');
  });

  it('are not resolved by a rejection that arrives while an extension is evaluated', async () => {
    const id = await sent();
    await park(id, 'settle_by_passed');
    const until = new Date(Date.now() + 10 * dayMs).toISOString();
    const hold = new Hold();
    const input = await inputOf(id, { kind: 'extendDeadline', until });
    // The command reads the payout before the contradiction and writes after it.
    const execution = attempt(() =>
      activities({}, drowsy(time.worker, 1, hold)).executeCommand(input),
    );
    await hold.reached;
    await report(id, await settledReport(id, 1n));
    await storeRailEvents(time.database, 'sandbox', [railEvent(id, rejectedReport)]);
    hold.open();
    await execution.catch(() => undefined);
    expect(await execute(input)).toMatchObject({ outcome: 'refused' });
    await report(id, await settledReport(id, 1n));
    await expectHeld(id, 'sent');
  });
});

describe('an answer that calls a key a duplicate', () => {
  it('is not a rejection: the first order is on its way and arrives', async () => {
    const id = await accepted();
    await submit(id, { submit: 'late' });
    // The lookup does not find the order, which arrives before it is submitted again.
    await submit(id, {
      lookup: 'blind',
      submit: 'refused',
      hold: async (call) => {
        if (call === 'lookup') bank.act(id, 'takesLate');
      },
    });
    await expectHeld(id, 'processing');
    await submit(id);
    await expectHeld(id, 'sent');
    bank.act(id, 'pays');
    await deliverReports();
    expect(bank.paymentsOf(id)).toHaveLength(1);
    await expectEnd(id, 'settled', settled);
  });

  it('is not a rejection by callback either', async () => {
    const id = await sent();
    bank.act(id, 'callsDuplicate');
    await deliverReports();
    await expectHeld(id, 'sent');
    bank.act(id, 'pays');
    await deliverReports();
    const { status, attentionReason } = await rowOf(id);
    // The payout may be parked for this, but it must not be released.
    expect(status === 'settled' || attentionReason !== null).toBe(true);
  });
});

describe('a process that was suspended', () => {
  it('sends nothing when it resumes, wherever it was suspended', async () => {
    for (let statements = 1; statements <= 6; statements += 1) {
      await time.beginAnew();
      const id = await accepted();
      const hold = new Hold();
      const suspended = activities({}, drowsy(time.worker, statements, hold));
      const submission = attempt(() => suspended.submitPayouts({ driver: id, ids: [id] })).catch(
        String,
      );
      if ((await Promise.race([submission, hold.reached])) !== 'held') break;
      // Meanwhile another process submits it, and the bank pays and forgets the key.
      await submit(id);
      bank.act(id, 'pays');
      await deliverReports();
      await wait(25 * hourMs);
      hold.open();
      await submission;
      expect(bank.paymentsOf(id).length, `asleep after ${statements} statements`).toBeLessThan(2);
      await wait(bank.limits.settleWithinMs);
      expect(bank.paymentsOf(id), `asleep after ${statements} statements`).toHaveLength(1);
    }
  });

  it('does not send again when it resumes if the bank has forgotten the key meanwhile', async () => {
    for (let statements = 1; statements <= 6; statements += 1) {
      await time.beginAnew();
      const id = await accepted();
      await submit(id, { submit: 'lost' });
      const hold = new Hold();
      const suspended = activities({}, drowsy(time.worker, statements, hold));
      const submission = attempt(() => suspended.submitPayouts({ driver: id, ids: [id] })).catch(
        String,
      );
      if ((await Promise.race([submission, hold.reached])) !== 'held') break;
      bank.act(id, 'pays');
      await wait(25 * hourMs);
      hold.open();
      await submission;
      await wait(bank.limits.settleWithinMs);
      expect(bank.paymentsOf(id), `asleep after ${statements} statements`).toHaveLength(1);
    }
  });

  it('does not send again a payout that it was about to repeat', async () => {
    const { chunk, ids } = await acceptedItems(2);
    const [first = ''] = ids;
    await submit(first, { submit: 'lost' });
    const hold = new Hold();
    const suspended = activities({ hold: (call) => (call === 'submit' ? hold.wait() : noop()) });
    const submission = attempt(() =>
      suspended.submitPayouts({ driver: chunkDriver(chunk), ids }),
    ).catch(String);
    await Promise.race([submission, hold.reached]);
    bank.act(first, 'pays');
    await wait(25 * hourMs);
    hold.open();
    await submission;
    await wait(bank.limits.settleWithinMs);
    expect(bank.paymentsOf(first)).toHaveLength(1);
  });

  it('does not trust a void of a key that the bank has paid and forgotten meanwhile', async () => {
    const id = await accepted();
    await submit(id, { submit: 'lost' });
    const hold = new Hold();
    const suspended = activities({}, drowsy(time.worker, 2, hold));
    const submission = attempt(() => suspended.submitPayouts({ driver: id, ids: [id] })).catch(
      String,
    );
    await hold.reached;
    // A cancellation begins, but it is also suspended before it reaches the bank.
    await expect(execute(inputOf(id, cancel), { void: 'fails' })).rejects.toThrow('did not arrive');
    bank.act(id, 'pays');
    await wait(25 * hourMs);
    await bank.rail().voidKey(id);
    hold.open();
    expect(await submission).toMatch(/suspended/);
    await expectHeld(id, 'processing');
  });

  it('leaves the outcome unknown if nothing else was sent, and the next attempt sends', async () => {
    const id = await accepted();
    const hold = new Hold();
    // The process has read the payout's owner and committed the start of the submission.
    const suspended = activities({}, drowsy(time.worker, 2, hold));
    const submission = attempt(() => suspended.submitPayouts({ driver: id, ids: [id] })).catch(
      String,
    );
    await hold.reached;
    await wait(2 * minuteMs);
    hold.open();
    expect(await submission).toMatch(/unknown/);
    expect(bank.asked).toEqual([]);
    await expectHeld(id, 'processing');
    await submit(id);
    expect(await rowOf(id)).toMatchObject({ status: 'sent' });
  });
});

describe('a return', () => {
  /** The bank returns a share of a settled payout and reports it. */
  async function returned(shareOf: (receiveMinor: bigint) => bigint): Promise<string> {
    const id = await sent();
    bank.act(id, 'pays');
    await deliverReports();
    const { receiveMinor, destinationCurrency } = await rowOf(id);
    const amountMinor = shareOf(receiveMinor ?? 0n);
    const currency = destinationCurrency ?? '';
    await report(id, { kind: 'returned', amountMinor, currency, code: 'AC06' });
    return id;
  }
  /** The smallest amount that is at least 90 %. */
  const ninetyPercent = (receiveMinor: bigint) => (receiveMinor * 9n + 9n) / 10n;
  const credited = ['accept', 'return', 'settle'];

  it.each([
    ['all of it', (all: bigint) => all],
    ['all but a correspondent’s fee', (all: bigint) => (all * 95n) / 100n],
    ['nine tenths', ninetyPercent],
  ])('of %s is credited', async (_name, shareOf) => {
    const id = await returned(shareOf);
    await expectEnd(id, 'returned', credited);
  });

  it.each([
    ['one minor unit', () => 1n],
    ['half', (all: bigint) => all / 2n],
    ['a minor unit less than nine tenths', (all: bigint) => ninetyPercent(all) - 1n],
  ])('of %s waits for a person and credits nothing', async (_name, shareOf) => {
    const id = await returned(shareOf);
    await expectEnd(id, 'settled', settled);
    expect(await rowOf(id)).toMatchObject({ attentionReason: expect.any(String) });
  });

  it('in two halves waits for a person as well', async () => {
    const id = await returned((all) => all / 2n);
    const { receiveMinor, destinationCurrency } = await rowOf(id);
    const amountMinor = (receiveMinor ?? 0n) / 2n + 1n;
    const currency = destinationCurrency ?? '';
    await report(id, { kind: 'returned', amountMinor, currency, code: 'AC06' });
    await expectEnd(id, 'settled', settled);
    expect(await rowOf(id)).toMatchObject({ attentionReason: expect.any(String) });
  });

  it('in another currency, after a full return, waits for a person', async () => {
    const id = await returned((all) => all);
    const { amountMinor } = await settledReport(id);
    await report(id, { kind: 'returned', amountMinor, currency: 'XAU', code: 'AC06' });
    await expectEnd(id, 'returned', credited);
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'amount_mismatch' });
  });

  it('before the settlement is reported waits as well, and does not settle the payout', async () => {
    const id = await sent();
    const { currency } = await settledReport(id);
    await report(id, { kind: 'returned', amountMinor: 1n, currency, code: 'AC06' });
    expect(Object.keys(await postingsOf(time.database, id))).not.toContain('return');
    expect(await rowOf(id)).toMatchObject({ attentionReason: expect.any(String) });
  });
});

describe('one answer that cannot be read', () => {
  it('holds up one payout of a chunk, and not the others', async () => {
    const { chunk, ids } = await acceptedItems(12);
    // All but the last three were submitted before, and the submissions were lost.
    const first = { driver: chunkDriver(chunk), ids: ids.slice(0, -3) };
    await attempt(() => activities({ submit: 'dropped' }).submitPayouts(first)).catch(() => null);
    const [unreadable = ''] = ids.slice(4);
    bank.unreadable.add(unreadable);
    // The attempt may fail; only the resulting rows matter.
    await attempt(() => activities().submitChunk(chunk)).catch(() => undefined);
    const rows = await Promise.all(ids.map(rowOf));
    expect(rows.filter(({ status }) => status !== 'sent').map(({ id }) => id)).toEqual([
      unreadable,
    ]);
    await expectHeld(unreadable, 'processing');
  });

  it('parks the payout when the bank’s time is over', async () => {
    const id = await accepted();
    await submit(id, { submit: 'dropped' });
    bank.unreadable.add(id);
    await wait(bank.limits.settleWithinMs + dayMs);
    await submit(id);
    await expectHeld(id, 'processing');
    expect(await rowOf(id)).toMatchObject({ attentionReason: expect.any(String) });
  });
});

async function isDue(id: string): Promise<boolean> {
  const [row] = await time.database<{ isDue: boolean }[]>`
    select wake_at is not null as is_due from payouts where id = ${id}`;
  return exactlyOne(row).isDue;
}

describe('a parked payout', () => {
  it('is not settled on evidence if it was never sent, but released or continued', async () => {
    const id = await accepted();
    await park(id, 'unexpected_failure');
    const settle = { kind: 'markSettled', evidence: 'MT103 of another order' } as const;
    expect(await execute(inputOf(id, settle))).toMatchObject({
      outcome: 'refused',
      detail: expect.stringContaining('never sent'),
    });
    await expectHeld(id, 'processing');
    expect(await execute(inputOf(id, { kind: 'retryNow' }))).toMatchObject({ outcome: 'done' });
    await submit(id);
    expect(await rowOf(id)).toMatchObject({ status: 'sent', attentionReason: null });
  });

  it('sees a report that was being stored while it was parked', async () => {
    const id = await sent();
    const { driver } = await rowOf(id);
    const settlement = await settledReport(id);
    const parking: Promise<unknown>[] = [];
    await time.database.begin(async (sql) => {
      await storeRailEvents(sql, 'sandbox', [railEvent(id, settlement)]);
      const input = { driver, id, reason: 'settle_by_passed', detail: 'late' } as const;
      parking.push(attempt(() => activities().parkPayout(input)));
      await untilLockWaits(time.database, 'parking waits for the report', 20_000);
    });
    expect(await Promise.all(parking)).toMatchObject([[{ id, hasUnprocessedEvents: true }]]);
  });
});

describe('a payout that no longer waits for a person', () => {
  it('is due, even if it was never decided', async () => {
    const id = await requested();
    await park(id, 'unexpected_failure');
    expect(await execute(inputOf(id, { kind: 'retryNow' }))).toMatchObject({ outcome: 'done' });
    // If its worker dies now, the sweep finds the payout.
    expect(await isDue(id)).toBe(true);
  });

  it('is due if the rail has sent another report, even if it is final', async () => {
    const id = await sent();
    bank.act(id, 'pays');
    await deliverReports();
    await park(id, 'unexpected_failure');
    const accepted = { kind: 'accepted', reference: 'again' } as const;
    await storeRailEvents(time.database, 'sandbox', [railEvent(id, accepted)]);
    const settle = { kind: 'markSettled', evidence: 'MT103 seen' } as const;
    expect(await execute(inputOf(id, settle))).toMatchObject({ outcome: 'done' });
    expect(await isDue(id)).toBe(true);
  });

  it('is not ended by its customer or by one person if the bank has reported on it', async () => {
    const id = await requested();
    await report(id, { kind: 'settled', amountMinor: 100n, currency: 'EUR' });
    const parked = { status: 'pending', attentionReason: 'contradiction' };
    expect(await rowOf(id)).toMatchObject(parked);
    expect(await execute(inputOf(id, cancel))).toMatchObject({ outcome: 'refused' });
    expect(await execute(inputOf(id, { kind: 'retryNow' }))).toMatchObject({ outcome: 'proposed' });
    await attempt(() => activities().decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 }));
    expect(await rowOf(id)).toMatchObject(parked);
  });

  it('is not decided or canceled with its batch if the bank has reported on it', async () => {
    const { chunk, ids } = await requestedItems(2);
    const [id = '', other = ''] = ids;
    await report(id, { kind: 'settled', amountMinor: 100n, currency: 'EUR' });
    await attempt(() => activities().acceptChunk({ ...chunk, workflowAgeMs: 0 }));
    expect(await rowOf(other)).toMatchObject({ status: 'processing' });
    await cancelBatch(time.database, chunk.batchId);
    await attempt(() => activities().cancelChunk(chunk));
    await expectEnd(other, 'canceled', released);
    expect(await rowOf(id)).toMatchObject({ status: 'pending', attentionReason: 'contradiction' });
  });

  it('is not canceled if the bank has reported on it and nobody has read the report', async () => {
    const id = await requested();
    await park(id, 'unexpected_failure');
    const paid = { kind: 'settled', amountMinor: 100n, currency: 'EUR' } as const;
    await storeRailEvents(time.database, 'sandbox', [railEvent(id, paid)]);
    expect(await execute(inputOf(id, cancel))).toMatchObject({ outcome: 'refused' });
    expect(await rowOf(id)).toMatchObject({ status: 'pending', attentionReason: 'contradiction' });
  });

  it('is not decided alone while its all-or-nothing batch is undecided', async () => {
    const { account } = await createTestAccount(time.database);
    const options = { count: 2, mode: 'all_or_nothing' } as const;
    const batchId = await requestBatch(time.database, account.id, options);
    const items = await time.database<{ id: string }[]>`
      select id from payouts where batch_id = ${batchId} order by batch_index`;
    const [id = '', other = ''] = items.map((item) => item.id);
    await report(id, { kind: 'accepted', reference: 'of another order' });
    const chunk = { batchId, number: 0 };
    await handOverItems(time.database, chunk, 'all');
    expect(await rowOf(id)).toMatchObject({ driver: id, attentionReason: 'contradiction' });
    expect(await rowOf(other)).toMatchObject({ driver: chunkDriver(chunk) });
    // The first step of the payout's own workflow.
    await attempt(() => activities().decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 }));
    expect(await rowOf(id)).toMatchObject({ status: 'pending' });
    const retry = await execute(inputOf(id, { kind: 'retryNow' }));
    expect(retry).toMatchObject({
      outcome: 'refused',
      detail: expect.stringContaining('the rest of its batch'),
    });
    expect(await rowOf(id)).toMatchObject({ status: 'pending', attentionReason: 'contradiction' });
  });

  it('stays parked for a report that arrives while the command is evaluated', async () => {
    const id = await sent();
    await park(id, 'settle_by_passed');
    const until = new Date(Date.now() + 9 * dayMs).toISOString();
    for (const command of [{ kind: 'retryNow' }, { kind: 'extendDeadline', until }] as const) {
      // A new hold for each command: one already reached would let the second command race the fact.
      const hold = new Hold();
      const slow = activities({ hold: () => hold.wait() });
      const input = await inputOf(id, command);
      const execution = attempt(() => slow.executeCommand(input));
      const isHeld = (await Promise.race([execution, hold.reached])) === 'held';
      await report(id, await settledReport(id, 1n));
      hold.open();
      await execution.catch(() => undefined);
      // A command without a lookup came first, and then the fact parks the payout again.
      expect(await rowOf(id), `${command.kind}, ${isHeld}`).toMatchObject({
        status: 'sent',
        attentionReason: expect.any(String),
      });
    }
  });
});

describe('a void that was started', () => {
  it('ends as canceled if the worker was killed before it could write', async () => {
    const id = await accepted();
    await submit(id, { submit: 'dropped' });
    const input = await inputOf(id, cancel);
    await expect(execute(input, { void: 'lost' })).rejects.toThrow('broke');
    await submit(id);
    await expectEnd(id, 'canceled', released);
    // A repeated command returns the payout's status.
    expect(await execute(input)).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'canceled', released);
    expect(await eventsOf(id)).toEqual(['payout.canceled']);
  });

  it('ends as canceled if the rail reports it as a rejection', async () => {
    const id = await accepted();
    await submit(id, { submit: 'dropped' });
    await expect(execute(inputOf(id, cancel), { void: 'lost' })).rejects.toThrow('broke');
    await report(id, { kind: 'rejected', code: 'DS02' });
    await expectEnd(id, 'canceled', released);
    expect(await rowOf(id)).toMatchObject({ statusReason: 'canceled', attentionReason: null });
    expect(await eventsOf(id)).toEqual(['payout.canceled']);
  });

  it('ends as canceled if a submission sees the void before the command can write', async () => {
    const id = await accepted();
    await submit(id, { submit: 'dropped' });
    const hold = new Hold();
    const slow = activities({ hold: () => hold.wait() });
    const input = await inputOf(id, cancel);
    const canceled = attempt(() => slow.executeCommand(input));
    await hold.reached;
    await submit(id);
    hold.open();
    expect((await canceled).result).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'canceled', released);
    expect(await eventsOf(id)).toEqual(['payout.canceled']);
  });

  it('ends as failed if it was for a person’s release', async () => {
    const id = await accepted();
    await submit(id, { submit: 'dropped' });
    await park(id, 'unexpected_failure');
    const input = await inputOf(id, release());
    await expect(execute(input, { void: 'lost' })).rejects.toThrow('broke');
    expect(await execute(input)).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'failed', released);
  });

  it('is finished or abandoned by the next attempt, and the order is not sent meanwhile', async () => {
    const id = await accepted();
    await submit(id, { submit: 'dropped' });
    const before = bank.asked.length;
    await expect(execute(inputOf(id, cancel), { void: 'fails' })).rejects.toThrow('did not arrive');
    await submit(id);
    const calls = bank.asked.slice(before).map(({ call }) => call);
    // Either the cancellation or the payout is carried out; never both.
    const row = await rowOf(id);
    expect(['canceled', 'sent']).toContain(row.status);
    if (row.status === 'canceled') expect(calls).not.toContain('submit');
    await wait(6 * dayMs);
    await deliverReports();
    expect(bank.paymentsOf(id)).toHaveLength(row.status === 'canceled' ? 0 : 1);
  });

  it('that came too late leaves the payout on its way', async () => {
    const id = await accepted();
    await submit(id, { submit: 'lost' });
    expect(await execute(inputOf(id, cancel))).toMatchObject({ outcome: 'refused' });
    await submit(id);
    expect(await rowOf(id)).toMatchObject({ status: 'sent', attentionReason: null });
    bank.act(id, 'pays');
    await deliverReports();
    await expectEnd(id, 'settled', settled);
  });

  it('by somebody else releases nothing and waits for a person', async () => {
    const id = await accepted();
    await submit(id, { submit: 'dropped' });
    await bank.rail().voidKey(id);
    await submit(id);
    await expectHeld(id, 'processing');
    expect(await rowOf(id)).toMatchObject({ attentionReason: expect.any(String) });
  });
});

async function eventsOf(id: string): Promise<readonly string[]> {
  const rows = await time.database<{ type: string }[]>`
    select type from events where subject_id = ${id} order by sequence`;
  return rows.map(({ type }) => type);
}

describe('a payment of another amount after the release', () => {
  it('needs two people to be closed, whatever the amount', async () => {
    const id = await accepted();
    await submit(id, { submit: 'refused' });
    await expectEnd(id, 'failed', released);
    const { receiveMinor } = await rowOf(id);
    const amountMinor = (receiveMinor ?? 0n) - 1n;
    await report(id, { kind: 'settled', amountMinor, currency: 'EUR' });
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'amount_mismatch' });
    expect(await execute(inputOf(id, release()))).toMatchObject({ outcome: 'proposed' });
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'amount_mismatch' });
  });
});

describe('a payout whose decision failed', () => {
  it('can be canceled by its customer', async () => {
    const id = await requested();
    await park(id, 'unexpected_failure');
    expect(await execute(inputOf(id, cancel))).toMatchObject({ outcome: 'done' });
    expect(await rowOf(id)).toMatchObject({ status: 'canceled', attentionReason: null });
    expect(await eventsOf(id)).toEqual(['payout.canceled']);
  });
});

describe('a settled payout', () => {
  it('is not parked as late if its settlement arrived at the deadline', async () => {
    const id = await sent();
    bank.act(id, 'pays');
    await deliverReports();
    await park(id, 'settle_by_passed');
    expect(await rowOf(id)).toMatchObject({ status: 'settled', attentionReason: null });
  });
});

describe('a command repeated after a crash returns the first result', () => {
  it.each<[string, OperatorCommand]>([
    ['a release', release()],
    ['a retry', { kind: 'retryNow' }],
    ['a settlement', { kind: 'markSettled', evidence: 'MT103 seen' }],
  ])('%s', async (_name, command) => {
    const id = await accepted();
    await submit(id, { submit: 'dropped' });
    await park(id, 'unexpected_failure');
    const input = await inputOf(id, command);
    const first = await execute(input);
    expect(first).toMatchObject({ outcome: 'done' });
    const { status } = await rowOf(id);
    expect(await execute(input)).toEqual(first);
    expect(await rowOf(id)).toMatchObject({ status });
  });
});

describe('a payout that may have been sent in a period that the database has lost', () => {
  afterEach(() =>
    withoutTriggers(time.database, async (sql) => {
      await sql`delete from interruptions`;
    }),
  );

  /** Resets the rows to the state before the submission, and records that the time since was lost. */
  async function restore(...ids: readonly string[]): Promise<void> {
    await withoutTriggers(time.database, async (sql) => {
      await sql`
        update payouts set status = 'processing', sent_since = null, submit_started_at = null,
               last_sent_at = null, rail_reference = null where id = any (${ids})`;
    });
    await time.database`
      insert into interruptions values (${new Date(Date.now() - minuteMs)}, ${new Date()})`;
    bank.asked.length = 0;
  }

  /** A payout that the bank has paid, but whose report is lost. */
  async function paidUnreported(): Promise<string> {
    const id = await sent();
    bank.act(id, 'pays');
    bank.takeAll();
    await restore(id);
    return id;
  }

  const callsOf = () => bank.asked.map(({ call }) => call);

  it('is looked up before anything is sent', async () => {
    const id = await paidUnreported();
    await submit(id);
    expect(callsOf()).toEqual(['lookup']);
    expect(bank.paymentsOf(id)).toHaveLength(1);
    await expectEnd(id, 'settled', settled);
  });

  it('is sent under the same key if the bank does not know it and would remember it', async () => {
    const id = await accepted();
    await restore(id);
    await submit(id);
    expect(callsOf()).toEqual(['lookup', 'submit']);
    await wait(bank.limits.settleWithinMs);
    await deliverReports();
    expect(bank.paymentsOf(id)).toHaveLength(1);
    await expectEnd(id, 'settled', settled);
  });

  it('is left to an operator once the bank may have forgotten its key', async () => {
    const id = await paidUnreported();
    await wait(25 * hourMs);
    await submit(id);
    expect(callsOf()).toEqual(['lookup']);
    const { attentionReason, attentionDetail } = await rowOf(id);
    expect(attentionReason).toBe('outcome_unknown');
    expect(attentionDetail).toContain("Check the bank's statement.");
    for (const command of [cancel, release(), { kind: 'retryNow' } as const]) {
      expect(await execute(inputOf(id, command))).toMatchObject({ outcome: 'refused' });
    }
    const evidence = { kind: 'markSettled', evidence: 'the statement of the day' } as const;
    expect(await execute(inputOf(id, evidence))).toMatchObject({ outcome: 'done' });
    expect(bank.paymentsOf(id)).toHaveLength(1);
    await expectEnd(id, 'settled', settled);
  });

  it.each([
    ['before', true],
    ['after', false],
  ])(
    'again gives the bank its whole time; the period was recorded %s its answer',
    async (_name, isBefore) => {
      const id = await accepted();
      const firstDeadline = dayAt(Date.now() + bank.limits.settleWithinMs + hourMs);
      await submit(id, { submit: 'dropped' });
      await wait(minuteMs);
      const began = new Date();
      await wait(22 * hourMs);
      await submit(id, { submit: 'unsaid' });
      await withoutTriggers(time.database, async (sql) => {
        await sql`update payouts set last_sent_at = submit_started_at where id = ${id}`;
      });
      const lose = () => time.database`insert into interruptions values (${began}, ${new Date()})`;
      if (isBefore) await lose();
      await submit(id);
      await expectHeld(id, 'sent');
      await wait(minuteMs);
      if (!isBefore) await lose();
      // The day of the first deadline is over and closed, and the bank pays ten hours later.
      await wait(4 * dayMs + 15 * hourMs);
      await park(id, 'settle_by_passed');
      expect(await execute(inputOf(id, release(firstDeadline)))).toMatchObject({
        outcome: 'refused',
        detail: expect.stringContaining('the rail may still pay'),
      });
      await wait(dayMs);
      await deliverReports();
      expect(bank.paymentsOf(id)).toHaveLength(1);
      await expectEnd(id, 'settled', settled);
    },
  );

  it('cannot be distinguished from one held up by a long outage', async () => {
    const before = await accepted();
    const began = new Date();
    await wait(2 * dayMs);
    await storeReferenceRates(time.database);
    const late = await accepted();
    await time.database`insert into interruptions values (${began}, ${new Date()})`;
    bank.asked.length = 0;
    for (const id of [before, late]) await submit(id);
    expect(callsOf()).toEqual(['lookup', 'lookup', 'submit']);
    expect(await rowOf(before)).toMatchObject({ attentionReason: 'outcome_unknown' });
    expect(await rowOf(late)).toMatchObject({ attentionReason: null });
  });

  it('is not released as never sent if the bank accepts it in the restored database', async () => {
    const id = await accepted();
    // The database goes back while the call to the bank is open; the answer is recorded afterwards.
    await submit(id, { hold: () => restore(id) });
    expect(await rowOf(id)).toMatchObject({ status: 'sent', submitStartedAt: null });
    await wait(bank.limits.settleWithinMs + hourMs);
    await park(id, 'settle_by_passed');
    for (const command of [release(), release(dayAt(Date.now())), cancel]) {
      expect(await execute(inputOf(id, command))).toMatchObject({ outcome: 'refused' });
    }
    await expectHeld(id, 'sent');
    // Nor if the restore went unnoticed, or another period was lost after the bank had accepted it.
    await withoutTriggers(time.database, async (sql) => {
      await sql`delete from interruptions`;
    });
    expect(await execute(inputOf(id, release()))).toMatchObject({ outcome: 'refused' });
    await time.database`
      insert into interruptions values (${new Date(Date.now() - minuteMs)}, ${new Date()})`;
    const [row] = await readPayouts(time.database, null, [id]);
    expect(row?.submitStartedAt).toEqual(row?.requestedAt);
    await expectHeld(id, 'sent');
  });

  it('is not shown to operators as never sent', async () => {
    const id = await accepted();
    await restore(id);
    await park(id, 'unexpected_failure');
    const text = await shown(() => showPayout(called(time, id)));
    expect(text).toContain('--statement-date');
    expect(text).toContain('(give it to the bank)');
    expect(text).not.toContain('never sent');
  });

  it('is canceled only with a void, which is refused if it was paid', async () => {
    const paid = await paidUnreported();
    expect(await execute(inputOf(paid, cancel))).toMatchObject({ outcome: 'refused' });
    await expectHeld(paid, 'processing');
    const unpaid = await accepted();
    await restore(unpaid);
    expect(await execute(inputOf(unpaid, cancel))).toMatchObject({ outcome: 'done' });
    expect(callsOf()).toEqual(['void']);
    await expectEnd(unpaid, 'canceled', released);
  });

  it('is voided before it is canceled with its batch', async () => {
    const { chunk, ids } = await acceptedItems(2);
    const [paid = '', unpaid = ''] = ids;
    await submit(paid);
    bank.act(paid, 'pays');
    bank.takeAll();
    await restore(paid, unpaid);
    await cancelBatch(time.database, chunk.batchId);
    await attempt(() => activities().cancelChunk(chunk));
    for (const id of ids) await expectHeld(id, 'processing');
    await attempt(() => activities().submitChunk(chunk));
    await expectEnd(paid, 'settled', settled);
    await expectEnd(unpaid, 'canceled', released);
    await submit(unpaid);
    await wait(6 * dayMs);
    expect(bank.paymentsOf(unpaid)).toEqual([]);
  });

  it('does not include one that was requested afterwards', async () => {
    await restore();
    await wait(1);
    const id = await accepted();
    await submit(id);
    expect(callsOf()).toEqual(['submit']);
    const later = await accepted();
    expect(await execute(inputOf(later, cancel))).toMatchObject({ outcome: 'done' });
    expect(callsOf()).toEqual(['submit']);
  });
});

describe('a fact that is being stored', () => {
  /** Runs `work` while a report of the bank about a payout is stored but not committed. */
  async function whileStoring(id: string, report: RailReport, work: () => Promise<unknown>) {
    const stored = Promise.withResolvers<void>();
    const commit = Promise.withResolvers<void>();
    const storing = transaction(time.database, async (sql) => {
      await storeRailEvents(sql, 'sandbox', [railEvent(id, report)]);
      stored.resolve();
      await commit.promise;
    });
    await stored.promise;
    let isOver = false;
    const other = work().finally(() => {
      isOver = true;
    });
    await eventually('the work ends or waits for a lock', 20_000, async () => {
      const waiting = await time.database`
        select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
      return isOver || waiting.count > 0 || undefined;
    });
    commit.resolve();
    await Promise.all([storing, other]);
  }

  const postpone = (id: string) => transaction(time.worker, (sql) => postponeWaiting(sql, [id]));

  it('leaves its payout due, even if a sweep postpones it meanwhile', async () => {
    const id = await sent();
    const report = await settledReport(id);
    await whileStoring(id, report, () => postpone(id));
    const [row] = await time.database<{ inMs: number }[]>`
      select extract(epoch from wake_at - now())::float8 * 1000 as in_ms from payouts where id = ${id}`;
    expect(exactlyOne(row).inMs).toBeLessThanOrEqual(5_000);
  });

  it('is read before a command closes the case that it belongs to', async () => {
    const id = await sent();
    await park(id, 'contradiction');
    const { amountMinor, currency } = await settledReport(id);
    const report = { kind: 'returned', amountMinor, currency, code: 'AC06', reason: '' } as const;
    const evidence = { kind: 'markSettled', evidence: 'the statement of the day' } as const;
    const input = await inputOf(id, evidence);
    await whileStoring(id, report, async () => {
      await expect(execute(input)).rejects.toThrow('the command is evaluated again');
    });
    await expectHeld(id, 'sent');
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'contradiction' });
  });

  it('is applied with another one that changes nothing, or leaves its final payout due', async () => {
    const id = await sent();
    bank.act(id, 'pays');
    await deliverReports();
    const { amountMinor, currency } = await settledReport(id);
    const accepted = { kind: 'accepted', reference: 'again' } as const;
    await storeRailEvents(time.database, 'sandbox', [railEvent(id, accepted)]);
    const report = { kind: 'returned', amountMinor, currency, code: 'AC06', reason: '' } as const;
    await whileStoring(id, report, () => settle(id));
    expect(await rowOf(id)).toMatchObject({ status: 'returned' });
  });

  it('just before its chunk is suspended keeps the chunk at work', async () => {
    const { chunk, ids } = await acceptedItems(1);
    const id = exactlyOne(ids[0]);
    await attempt(() => activities().submitChunk(chunk));
    const suspend = () => attempt(() => activities().suspendChunk({ ...chunk, forMs: hourMs }));
    const isWaiting = async () => {
      const [row] = await time.database<{ waiting: boolean }[]>`
        select waiting from batch_chunks where batch_id = ${chunk.batchId}`;
      return exactlyOne(row).waiting;
    };
    expect([await suspend(), await isWaiting()]).toEqual([true, true]);
    await storeRailEvents(time.database, 'sandbox', [railEvent(id, await settledReport(id))]);
    expect([await suspend(), await isWaiting()]).toEqual([false, false]);
  });

  it('before the decision leaves a refused payout due', async () => {
    const { account } = await createTestAccount(time.database, { funds: { USD: 1n } });
    const { id } = await requestPayout(time.database, account.id);
    await storeRailEvents(time.database, 'sandbox', [railEvent(id, rejectedReport)]);
    await attempt(() => activities().decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 }));
    expect(await rowOf(id)).toMatchObject({ status: 'failed' });
    expect(await isDue(id)).toBe(true);
    await settle(id);
    expect(await rowOf(id)).toMatchObject({ attentionReason: 'contradiction' });
  });

  it.each([
    { who: 'the customer', take: (id: string) => takeOver(time.database, id) },
    {
      who: 'an operator',
      take: (id: string) => insertRequest(time.database, id, signedBy(), { kind: 'retryNow' }),
    },
  ])('is applied by an item’s own workflow when $who takes it out of its chunk', async (by) => {
    const { chunk, ids } = await acceptedItems(1);
    const id = exactlyOne(ids[0]);
    await attempt(() => activities().submitChunk(chunk));
    bank.act(id, 'pays');
    await deliverReports();
    expect(await rowOf(id)).toMatchObject({ status: 'settled', driver: chunkDriver(chunk) });
    const { amountMinor, currency } = await settledReport(id);
    const report = { kind: 'returned', amountMinor, currency, code: 'AC06', reason: '' } as const;
    await whileStoring(id, report, async () => {
      await by.take(id);
      await settle(id);
      // As the sweep does after it has woken a payout.
      await postpone(id);
    });
    expect(await rowOf(id)).toMatchObject({ status: 'returned', driver: id });
  });
});

it.each([
  { whose: 'a customer', take: (id: string) => takeOver(time.database, id) },
  {
    whose: 'an operator',
    take: (id: string) => insertRequest(time.database, id, signedBy(), cancel),
  },
])(
  'an item is canceled by a request of $whose that comes while it is being accepted',
  async (by) => {
    const { chunk, ids } = await requestedItems(1);
    const id = exactlyOne(ids[0]);
    const deps = { rails: createRails([bank.rail()]), rateMaximumAgeMs };
    let taking: Promise<unknown> | undefined;
    await transaction(time.worker, async (sql) => {
      await accept(sql, deps, { driver: chunkDriver(chunk), ids, workflowAgeMs: 0 });
      taking = by.take(id);
      await untilLockWaits(time.database, 'the request waits for the decision', 20_000);
    });
    await taking;
    expect(await rowOf(id)).toMatchObject({ status: 'processing', driver: id });
    expect(await execute(inputOf(id, cancel))).toMatchObject({ outcome: 'done' });
    await expectEnd(id, 'canceled', released);
  },
);

it('a payout is not canceled by a request that is more than an hour old', async () => {
  const id = await accepted();
  const input = await inputOf(id, cancel);
  await wait(hourMs);
  const detail = expect.stringContaining('may be executed now');
  expect(await execute(input)).toMatchObject({ detail });
  await expectHeld(id, 'processing');
  expect(await execute(inputOf(id, cancel))).toMatchObject({ outcome: 'done' });
  await expectEnd(id, 'canceled', released);
});
