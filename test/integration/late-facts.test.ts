import { WorkflowNotFoundError } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listActions } from '../../src/db/operatorActions.js';
import type { PayoutRow } from '../../src/db/payouts.js';
import type { OperatorCommand } from '../../src/domain/operator.js';
import { statusHistory } from '../../src/domain/payout.js';
import { eventually } from '../assertions/eventually.js';
import { expectedPostings, postingsOf } from '../assertions/postings.js';
import { callBack, newsOf } from '../fakes/bankCallback.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { textOf, untilStatus } from '../fixtures/client.js';
import { command, operate } from '../fixtures/operators.js';
import {
  historyOf,
  openPayer,
  type Payer,
  rowOf,
  untilParked,
  untilSubmitted,
} from '../fixtures/payer.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
let receiver: Receiver;

beforeAll(async () => {
  system = await startSystem();
  receiver = await startReceiver();
});
afterAll(async () => {
  // Whatever the tests did, every currency must balance.
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
  await receiver.close();
  await system.stop();
});

/** A payout of 100.00 USD that has reached a final status, and whose workflow has closed. */
async function finished(reference: string, status: string): Promise<{ payer: Payer; id: string }> {
  const payer = await openPayer(system);
  await payer.client('POST /v1/webhook_endpoints', {
    json: { url: receiver.url, events: ['payout.returned', 'payout.settled'] },
  });
  const id = await payer.send(reference);
  await untilStatus(payer.client, id, status);
  await system.temporal.workflow.getHandle(id).result();
  return { payer, id };
}

type InboxLine = { readonly fact: unknown; readonly outcome: string | null };

/** The rail's reports about a payout, in order, once each has an outcome. */
function inboxOf(id: string, length: number): Promise<readonly InboxLine[]> {
  return eventually(`${length} facts of ${id} are applied`, 20_000, async () => {
    const lines = await system.database<InboxLine[]>`
      select fact, case when i.id = any (p.applied_facts) then 'moved' else outcome end as outcome
        from rail_inbox i join payouts p on p.id = i.payout_id where p.id = ${id} order by i.id`;
    const isDone = lines.length === length && lines.every(({ outcome }) => outcome !== null);
    return isDone ? lines : undefined;
  });
}

describe('a return', () => {
  it('after the workflow has closed refunds the net amount and keeps the fee', async () => {
    const payer = await openPayer(system);
    await payer.client('POST /v1/webhook_endpoints', {
      json: { url: receiver.url, events: ['payout.returned'] },
    });
    const id = await payer.send('simulate: return AM04 after 2s');
    const { workflow } = system.temporal;
    await expect(workflow.getHandle(id).result()).resolves.toBe('settled');
    const first = await workflow.getHandle(id).describe();

    const returned = await untilStatus(payer.client, id, 'returned');
    expect(returned.body).toMatchObject({
      status_reason: 'AM04',
      returned_amount: returned.body['receive_amount'],
    });
    const second = await workflow.getHandle(id).describe();
    expect(second.runId).not.toBe(first.runId);

    const row = await rowOf(system, id);
    const expected = expectedPostings(row);
    expect(await postingsOf(system.database, id)).toEqual({
      accept: expected.accept,
      settle: expected.settle,
      return: expected.return,
    });
    expect(row.feeMinor).toBeGreaterThan(0n);
    expect(await payer.balance()).toEqual({
      available: 100_000n - (row.feeMinor ?? 0n),
      held: 0n,
    });
    expect((await payer.eventsOf(id)).slice(-1)).toEqual(['payout.returned']);
    const hook = await receiver.next(({ body }) => body.includes(id));
    expect(JSON.parse(hook.body)).toMatchObject({
      type: 'payout.returned',
      data: { id, status: 'returned', status_reason: 'AM04' },
    });
  });

  it('of less than was sent costs us the difference, not the customer', async () => {
    const { payer, id } = await finished('an ordinary payout', 'settled');
    const row = await rowOf(system, id);
    const returnedMinor = (row.receiveMinor ?? 0n) - 150n;
    const news = newsOf(row, {
      type: 'returned',
      amount: String(returnedMinor),
      code: 'AC04',
      reason: 'The account is closed.',
    });
    expect(await callBack(system, [news])).toBe(200);
    await untilStatus(payer.client, id, 'returned');

    const { return: posted } = await postingsOf(system.database, id);
    expect(posted).toEqual(expectedPostings(row, returnedMinor).return);
    expect(posted).toMatchObject({ 'return_costs:EUR': -150n });
    expect(await payer.balance()).toEqual({
      available: 100_000n - (row.feeMinor ?? 0n),
      held: 0n,
    });
    expect((await rowOf(system, id)).returnedMinor).toBe(returnedMinor);
    const hook = await receiver.next(({ body }) => body.includes(id) && isReturn(body));
    expect(JSON.parse(hook.body)).toMatchObject({ data: { id, status: 'returned' } });
  });

  it('of more than was sent posts nothing and needs attention', async () => {
    const { payer, id } = await finished('an ordinary payout', 'settled');
    const row = await rowOf(system, id);
    const amount = String((row.receiveMinor ?? 0n) + 1n);
    await callBack(system, [newsOf(row, { type: 'returned', amount, code: 'AC04' })]);
    expect(await untilParked(system, id)).toMatchObject({
      status: 'settled',
      attentionReason: 'amount_mismatch',
    });
    expect(Object.keys(await postingsOf(system.database, id))).toEqual(['accept', 'settle']);
    expect(await payer.balance()).toEqual({ available: 90_000n, held: 0n });
    await confirm(id, { kind: 'markSettled', evidence: 'the bank has corrected itself' });
  });
});

const isReturn = (body: string) => body.includes('"payout.returned"');

/** Lets an operator confirm the payout's status, which clears the attention. */
async function confirm(id: string, confirmation: OperatorCommand): Promise<void> {
  const parked = await rowOf(system, id);
  const before = await postingsOf(system.database, id);
  const result = await command(system, id, confirmation);
  expect(result).toMatchObject({ outcome: 'done' });
  const row = await rowOf(system, id);
  expect(row).toMatchObject({ status: parked.status, attentionReason: null, attentionAt: null });
  const actions = await listActions(system.database, id);
  expect(actions.map((action) => [action.id, action.operator, action.command.kind])).toEqual([
    [result.action, 'grace', confirmation.kind],
  ]);
  expect(await postingsOf(system.database, id)).toEqual(before);
  // Nothing is left to do, so the workflow closes as it would have without the late fact.
  await expect(system.temporal.workflow.getHandle(id).result()).resolves.toBe(parked.status);
}

/** Lets two operators write off the suspense balance, which clears the attention. */
async function writeOff(id: string): Promise<void> {
  const { action } = await operate(system, id, 'clear-suspense', { charge: 'house' });
  const approval = { operator: 'barbara', proposal: action };
  const approved = await operate(system, id, 'approve', approval);
  expect(approved.isCarriedOut, approved.printed).toBe(true);
  expect(await rowOf(system, id)).toMatchObject({ attentionReason: null });
  const { status } = await rowOf(system, id);
  await expect(system.temporal.workflow.getHandle(id).result()).resolves.toBe(status);
}

describe('a settlement that arrives after the money was released', () => {
  it('is booked to suspense once, however often it is reported', async () => {
    const { payer, id } = await finished('simulate: reject AC04', 'failed');
    const row = await rowOf(system, id);
    expect(await callBack(system, [newsOf(row, { type: 'settled' })])).toBe(200);
    const parked = await untilParked(system, id);
    expect(parked).toMatchObject({ status: 'failed', attentionReason: 'paid_after_release' });
    await expectSuspense(payer, parked);

    // A new event ID makes it another event for systems that only compare IDs.
    expect(await callBack(system, [newsOf(row, { type: 'settled' })])).toBe(200);
    const facts = await inboxOf(id, 2);
    expect(facts.map(({ outcome }) => outcome)).toEqual([
      'paid_after_release',
      'paid_after_release',
    ]);
    await expectSuspense(payer, parked);
    await writeOff(id);
  });

  it('is booked once if one callback reports it twice', async () => {
    const { payer, id } = await finished('simulate: reject AC04', 'failed');
    const row = await rowOf(system, id);
    const twice = [newsOf(row, { type: 'settled' }), newsOf(row, { type: 'settled' })];
    expect(await callBack(system, twice)).toBe(200);
    await expectSuspense(payer, await untilParked(system, id));
    await inboxOf(id, 2);
    await writeOff(id);
  });

  it('is the same for a payout that was canceled', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: timeout then nothing');
    await untilSubmitted(system, id);
    const canceled = await payer.client(`POST /v1/payouts/${id}/cancel`);
    expect(canceled).toMatchObject({ status: 200, body: { status: 'canceled' } });
    await callBack(system, [newsOf(await rowOf(system, id), { type: 'settled' })]);
    const parked = await untilParked(system, id);
    expect(parked).toMatchObject({ status: 'canceled', attentionReason: 'paid_after_release' });
    await expectSuspense(payer, parked);
    await writeOff(id);
  });
});

/** The customer has the money back although the bank has paid, and no event reports it. */
async function expectSuspense(payer: Payer, row: PayoutRow): Promise<void> {
  const { accept, release, late_payment } = expectedPostings(row);
  expect(await postingsOf(system.database, row.id)).toEqual({ accept, release, late_payment });
  expect(await payer.balance()).toEqual({ available: 100_000n, held: 0n });
  expect(await payer.eventsOf(row.id)).toEqual([`payout.${row.status}`]);
}

describe('a rejection after the settlement', () => {
  it('changes nothing and needs attention, with both facts recorded', async () => {
    const { payer, id } = await finished('an ordinary payout', 'settled');
    const row = await rowOf(system, id);
    const rejection = newsOf(row, { type: 'rejected', code: 'AC06', reason: 'Blocked.' });
    expect(await callBack(system, [rejection])).toBe(200);
    const parked = await untilParked(system, id);
    expect(parked).toMatchObject({ status: 'settled', attentionReason: 'contradiction' });
    expect(parked.attentionDetail).toContain('AC06');

    expect(await inboxOf(id, 2)).toMatchObject([
      { fact: { kind: 'settled', amountMinor: String(row.receiveMinor) }, outcome: 'moved' },
      { fact: { kind: 'rejected', code: 'AC06' }, outcome: 'contradiction' },
    ]);
    const answer = await payer.client(`GET /v1/payouts/${id}`);
    expect(historyOf(answer)).toEqual(['pending', 'processing', 'sent', 'settled']);
    const { accept, settle } = expectedPostings(row);
    expect(await postingsOf(system.database, id)).toEqual({ accept, settle });
    expect(await payer.balance()).toEqual({ available: 90_000n, held: 0n });
    expect(await payer.eventsOf(id)).toEqual(['payout.sent', 'payout.settled']);

    const release = { kind: 'failAndRelease', statementDate: '2026-01-01' } as const;
    expect(await command(system, id, release)).toMatchObject({ outcome: 'refused' });
    expect((await rowOf(system, id)).attentionReason).toBe('contradiction');
  });

  it('is resolved with an audit line when an operator confirms the settlement', async () => {
    const { id } = await finished('an ordinary payout', 'settled');
    const row = await rowOf(system, id);
    await callBack(system, [newsOf(row, { type: 'rejected', code: 'AC06' })]);
    await untilParked(system, id);
    await confirm(id, { kind: 'markSettled', evidence: 'camt.054 of the same day' });
  });
});

describe('a settlement that arrives while the answer of the rail is awaited', () => {
  it('records sent and then settled, with an event each', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: timeout then nothing');
    const row = await untilSubmitted(system, id);
    expect(row.status).toBe('processing');
    await callBack(system, [newsOf(row, { type: 'settled' })]);
    const settled = await untilStatus(payer.client, id, 'settled');
    expect(historyOf(settled)).toEqual(['pending', 'processing', 'sent', 'settled']);
    const [, , sent, last] = statusHistory(await rowOf(system, id));
    expect(Date.parse(sent?.at ?? '')).toBeLessThanOrEqual(Date.parse(last?.at ?? ''));
    expect(await payer.eventsOf(id)).toEqual(['payout.sent', 'payout.settled']);
    await expect(system.temporal.workflow.getHandle(id).result()).resolves.toBe('settled');
  });
});

describe('a callback', () => {
  async function linesInTheInbox(): Promise<number> {
    return (await system.database`select from rail_inbox`).count;
  }

  // The times are those of the test: the file may have been read minutes before.
  it.each([
    ['signed with another secret', () => ({ secret: 'another-secret-0123456789' })],
    ['with another body than the signed one', () => ({ signedBody: '{"events":[]}' })],
    ['from six minutes ago', () => ({ sentAtMs: Date.now() - 6 * 60_000 })],
    ['from six minutes ahead', () => ({ sentAtMs: Date.now() + 6 * 60_000 })],
  ])('%s is refused, and nothing of it is stored', async (_which, forgery) => {
    const { payer, id } = await finished('simulate: reject AC04', 'failed');
    const before = await linesInTheInbox();
    const news = newsOf(await rowOf(system, id), { type: 'settled' });
    expect(await callBack(system, [news], forgery())).toBe(401);
    expect(await linesInTheInbox()).toBe(before);
    expect(await rowOf(system, id)).toMatchObject({ status: 'failed', attentionReason: null });
    expect(await payer.balance()).toEqual({ available: 100_000n, held: 0n });
  });

  it('with a key that we never issued is stored and wakes no workflow', async () => {
    const { id } = await finished('an ordinary payout', 'settled');
    const stranger = { ...(await rowOf(system, id)), id: 'po_of_somebody_else' };
    const news = newsOf(stranger, { type: 'settled' });
    expect(await callBack(system, [news])).toBe(200);
    const kept = await system.database`
      select rail_key, payout_id, fact, applied_at from rail_inbox
       where rail_event_id = ${news.id}`;
    expect(kept).toMatchObject([
      { railKey: stranger.id, payoutId: null, fact: { kind: 'settled' }, appliedAt: null },
    ]);
    await expect(system.temporal.workflow.getHandle(stranger.id).describe()).rejects.toBeInstanceOf(
      WorkflowNotFoundError,
    );
  });

  it('that reuses an event id with different content is a separate fact', async () => {
    const { id } = await finished('an ordinary payout', 'settled');
    const first = newsOf(await rowOf(system, id), { type: 'settled' });
    const other = { ...first, type: 'rejected', code: 'AC04' } as const;
    // Repetitions, some with another text, also within one callback.
    const again = { ...other, reason: 'attempt 2' };
    for (const news of [[first], [other, again], [other], [{ ...other, reason: 'attempt 3' }]])
      expect(await callBack(system, news)).toBe(200);
    const facts = await inboxOf(id, 3);
    expect(facts.map(({ outcome }) => outcome)).toEqual(['moved', 'nothing new', 'contradiction']);
    expect(await untilParked(system, id)).toMatchObject({ attentionReason: 'contradiction' });
  });

  it('that reuses an event id for another payout is a separate fact', async () => {
    const [first, second] = await Promise.all([
      finished('an ordinary payout', 'settled'),
      finished('an ordinary payout', 'settled'),
    ]);
    const news = { type: 'returned', code: 'AC04', id: `daily-${first.id}` } as const;
    const key = `${first.id}x`;
    await callBack(system, [newsOf(await rowOf(system, first.id), { ...news, key })]);
    await callBack(system, [newsOf(await rowOf(system, first.id), news)]);
    await callBack(system, [newsOf(await rowOf(system, second.id), news)]);
    await untilStatus(first.payer.client, first.id, 'returned');
    await untilStatus(second.payer.client, second.id, 'returned');
  });

  it('about a refused payout requires two operators, and forbids a retry', async () => {
    const payer = await openPayer(system);
    const refused = await payer.ask('more than there is', { amount: '200000' });
    const id = textOf(refused, 'payout');
    const row = await rowOf(system, id);
    expect(row).toMatchObject({ status: 'failed', rail: null });
    const news = { type: 'settled', amount: '160000', currency: 'EUR' } as const;
    await callBack(system, [newsOf(row, news)]);
    const parked = await untilParked(system, id);
    expect(parked).toMatchObject({ status: 'failed', attentionReason: 'contradiction' });
    const again = { source_currency: 'USD', amount: '10000', retry_of: id };
    const retried = await payer.client('POST /v1/payouts', {
      form: { ...again, beneficiary: row.beneficiaryId },
    });
    expect(retried).toMatchObject({ status: 422, body: { code: 'retry_refused' } });
    const proposed = await operate(system, id, 'fail');
    expect(proposed.printed).toMatch(/^proposed: /m);
    const { action } = proposed;
    const approved = { kind: 'approve', proposal: action } as const;
    expect(await command(system, id, approved, 'barbara')).toMatchObject({ outcome: 'done' });
    expect(await rowOf(system, id)).toMatchObject({ status: 'failed', attentionReason: null });
    expect(await payer.balance()).toEqual({ available: 100_000n, held: 0n });
  });

  it('that reports a known fact wakes no workflow', async () => {
    const { id } = await finished('an ordinary payout', 'settled');
    const before = await system.temporal.workflow.getHandle(id).describe();
    expect(await callBack(system, [newsOf(await rowOf(system, id), { type: 'settled' })])).toBe(
      200,
    );
    const facts = await inboxOf(id, 2);
    expect(facts.map(({ outcome }) => outcome)).toEqual(['moved', 'nothing new']);
    const after = await system.temporal.workflow.getHandle(id).describe();
    expect(after.runId).toBe(before.runId);
  });

  it('that changes nothing leaves no final payout for the sweep to wake', async () => {
    const payer = await openPayer(system);
    const id = await payer.send('simulate: timeout then nothing');
    await untilSubmitted(system, id);
    expect(textOf(await payer.client(`POST /v1/payouts/${id}/cancel`), 'status')).toBe('canceled');
    // The rail confirms the result of the void: the payout's workflow reads it, and is done.
    await callBack(system, [newsOf(await rowOf(system, id), { type: 'rejected', code: 'DS02' })]);
    const facts = await inboxOf(id, 1);
    expect(facts.map(({ outcome }) => outcome)).toEqual(['nothing new']);
    await system.temporal.workflow.getHandle(id).result();
    const [row] = await system.database`select wake_at from payouts where id = ${id}`;
    expect(row).toMatchObject({ wakeAt: null });
  });
});
