import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  it,
  type MockInstance,
  onTestFinished,
  vi,
} from 'vitest';
import { z } from 'zod';
import { listBatches, pause, resume, showBatch } from '../../src/cli/batches.js';
import { showPayout } from '../../src/cli/showPayout.js';
import { connectDatabase, exactlyOne } from '../../src/db/client.js';
import { cancelBatchUpdate } from '../../src/workflows/messages.js';
import { callBack, newsOf } from '../fakes/bankCallback.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import {
  batchIn,
  countsOf,
  journalByKey,
  openBatchPayer,
  rowsOf,
  sendPaused,
  untilAtRest,
  untilBatch,
  untilRows,
  wakeBatch,
} from '../fixtures/batchPayer.js';
import { textOf } from '../fixtures/client.js';
import { absentTemporal } from '../fixtures/interleaving.js';
import { called, command, operate, shown } from '../fixtures/operators.js';
import { rowOf, untilParked } from '../fixtures/payer.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
let receiver: Receiver;

beforeAll(async () => {
  system = await startSystem();
  receiver = await startReceiver();
});
afterAll(async () => {
  await receiver.close();
  await system.stop();
});
/** Spies on the output. */
let log: MockInstance<typeof console.log>;
beforeEach(() => {
  log = vi.spyOn(console, 'log').mockReturnValue();
});
afterEach(() => log.mockRestore());

const many = (count: number) => Array.from({ length: count }, (_, index) => `n ${index}`);
const cancellation = z.object({
  canceled: z.array(z.string()),
  not_canceled: z.array(z.object({ id: z.string(), status: z.string() })),
});

/** The number of the batch's payouts that the bank has received. */
async function heardOf(batchId: string): Promise<number> {
  const [rows, journal] = await Promise.all([rowsOf(system, batchId), journalByKey(system)]);
  return rows.filter(({ id }) => journal.has(id)).length;
}

describe('a paused batch', () => {
  it('is decided, but submitted to the rail only when it is resumed', async () => {
    const payer = await openBatchPayer(system, 1_200n * 2_000n);
    const id = await sendPaused(
      system,
      payer,
      many(1_200).map((name) => payer.item(name)),
    );
    const held = await untilBatch(payer.client, id, ({ counts }) => counts['processing'] === 1_200);
    expect(held).toMatchObject({ status: 'processing', paused: true });
    await untilAtRest(system, id);
    expect(await heardOf(id)).toBe(0);
    expect(await payer.balance()).toEqual({ available: 0n, held: 1_200n * 2_000n });
    // However often the chunk is woken.
    await wakeBatch(system, id);
    await untilAtRest(system, id);
    expect(await heardOf(id)).toBe(0);

    expect(await resume(called(system, id))).toBe(true);
    expect(log.mock.calls).toEqual([['resumed: The batch continues.']]);
    expect(await untilBatch(payer.client, id)).toMatchObject({ paused: false });
    expect(await heardOf(id)).toBe(1_200);
    expect(await payer.events()).toMatchObject({ 'payout.settled': 1_200, 'batch.completed': 1 });
  });

  it('that is resumed while Temporal is away goes on when the sweep comes', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const id = await sendPaused(system, payer, [payer.item('plain')]);
    await untilBatch(payer.client, id, ({ counts }) => counts['processing'] === 1);
    await untilAtRest(system, id);
    const { operator } = system.urls;
    const login = connectDatabase({ url: operator, poolSize: 1, applicationName: 'test' });
    onTestFinished(() => login.end());
    expect(await resume(called({ database: login, temporal: absentTemporal() }, id))).toBe(true);
    const [chunk] = await system.database<{ isDue: boolean }[]>`
      select wake_at < now() + interval '6 seconds' as is_due from batch_chunks where batch_id = ${id}`;
    expect(chunk).toEqual({ isDue: true });
    await untilBatch(payer.client, id);
  });

  it('is not named as what a parked item waits for', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const items = ['disputed', 'plain'].map((name) => payer.item(name));
    const id = await sendPaused(system, payer, items);
    await untilBatch(payer.client, id, ({ counts }) => counts['processing'] === 2);
    const [first, second] = await rowsOf(system, id);
    const disputed = exactlyOne(first);
    await callBack(system, [newsOf(disputed, { type: 'settled', amount: '1' })]);
    await untilParked(system, disputed.id);
    const shownOf = (payoutId = '') => shown(() => showPayout(called(system, payoutId)));
    expect(await shownOf(second?.id)).toContain('Its batch is paused.');
    const output = await shownOf(disputed.id);
    expect(output).toContain('The rail reports another amount or currency than was sent.');
    expect(output).not.toContain('Its batch is paused.');
  });

  it('that is over can no longer be resumed', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const id = await payer.send([payer.item('simulate: never settle')]);
    await untilRows(system, id, ([row]) => row?.status === 'sent');
    expect(await pause(called(system, id))).toBe(true);
    const row = exactlyOne((await rowsOf(system, id))[0]);
    await callBack(system, [newsOf(row, { type: 'settled' })]);
    await untilBatch(payer.client, id);
    expect(await resume(called(system, id))).toBe(false);
  });

  it('finishes the submissions that had begun', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const id = await sendPaused(
      system,
      payer,
      many(3).map((name) => payer.item(name)),
    );
    await untilBatch(payer.client, id, ({ counts }) => counts['processing'] === 3);
    await untilAtRest(system, id);
    const [begun] = await rowsOf(system, id);
    // The state that a worker leaves if it dies between the mark and the call.
    await system.database`update payouts set submit_started_at = now() where id = ${begun?.id ?? ''}`;
    await wakeBatch(system, id);
    await untilBatch(payer.client, id, ({ counts }) => counts['settled'] === 1);
    expect(await heardOf(id)).toBe(1);
    await resume(called(system, id));
    expect(countsOf(await untilBatch(payer.client, id))).toEqual({ settled: 3 });
  });

  it('can be listed, shown, paused and resumed by operators', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const items = [...many(3), 'much'].map((name) =>
      payer.item(name, name === 'much' ? { amount: '9000000' } : {}),
    );
    const id = await sendPaused(system, payer, items);
    await untilBatch(payer.client, id, ({ counts }) => counts['processing'] === 3);
    const printed = () => log.mock.calls.splice(0).map(String);

    await listBatches(called(system, ''));
    const since = textOf(await payer.client(`GET /v1/batches/${id}`), 'created_at');
    const summary = `${id}  paused  1 of 4 final\n  ${payer.accountId}, since ${since}`;
    expect(printed()).toContain(summary);
    await showBatch(called(system, id));
    // A step that is in progress just now is shown as well.
    const lines = printed().filter((line) => !line.includes(': attempt '));
    expect(lines).toEqual([summary, '       3  processing', '       1  failed']);
    expect(await pause(called(system, id))).toBe(true);
    expect(printed()).toEqual([
      'paused: No more payouts are sent to the rail until the batch is resumed.',
    ]);
    expect(await resume(called(system, id))).toBe(true);
    await untilBatch(payer.client, id);
    log.mockClear();
    expect(await resume(called(system, id))).toBe(false);
    expect(await pause(called(system, id))).toBe(false);
    expect(printed()).toEqual([
      'refused: The batch is not paused.',
      'refused: The batch is completed.',
    ]);
    await listBatches(called(system, ''));
    expect(printed().filter((line) => line.includes(id))).toEqual([]);
    await expect(showBatch(called(system, 'bat_0nothing'))).rejects.toThrow('There is no batch');
  });

  it('releases the money of an item that is canceled alone', async () => {
    const payer = await openBatchPayer(system, 6_000n);
    const id = await sendPaused(
      system,
      payer,
      many(3).map((name) => payer.item(name)),
    );
    await untilBatch(payer.client, id, ({ counts }) => counts['processing'] === 3);
    const [, second] = await rowsOf(system, id);
    const one = second?.id ?? '';
    const canceled = await payer.client(`POST /v1/payouts/${one}/cancel`);
    expect(canceled).toMatchObject({ status: 200, body: { status: 'canceled', batch: id } });
    expect(await payer.balance()).toEqual({ available: 2_000n, held: 4_000n });
    const handle = system.temporal.workflow.getHandle(one);
    expect(await handle.result()).toBe('canceled');
    await resume(called(system, id));
    const batch = await untilBatch(payer.client, id);
    expect(batch.status).toBe('completed');
    expect(countsOf(batch)).toEqual({ settled: 2, canceled: 1 });
    expect((await journalByKey(system)).has(one)).toBe(false);
    expect(await payer.events()).toMatchObject({ 'payout.canceled': 1, 'batch.completed': 1 });
  });
});

describe('a canceled batch', () => {
  it('cancels what the rail has not received, and lists both kinds of items', async () => {
    const payer = await openBatchPayer(system, 20_000n);
    await payer.client('POST /v1/webhook_endpoints', {
      json: { url: receiver.url, events: ['*'] },
    });
    const unanswered = 'simulate: timeout then nothing';
    const references = ['simulate: never settle', 'plain', 'n 2', 'n 3', 'much', 'n 5', unanswered];
    const items = references.map((name) =>
      payer.item(name, name === 'much' ? { amount: '90000' } : {}),
    );
    const id = await sendPaused(system, payer, items);
    await untilBatch(payer.client, id, ({ counts }) => counts['processing'] === 6);
    await untilAtRest(system, id);
    const ids = (await rowsOf(system, id)).map((row) => row.id);
    await system.database`
      update payouts set submit_started_at = now() where id = any (${[...ids.slice(0, 2), ids[6] ?? '']})`;
    await wakeBatch(system, id);
    await untilRows(
      system,
      id,
      ([first, second]) => first?.status === 'sent' && second?.status === 'settled',
    );

    const key = { idempotencyKey: 'cancel' };
    const [first, ...repeats] = await Promise.all(
      many(3).map(() => payer.client(`POST /v1/batches/${id}/cancel`, key)),
    );
    const expected = {
      canceled: [ids[2], ids[3], ids[5]],
      not_canceled: [
        { id: ids[0], status: 'sent' },
        { id: ids[1], status: 'settled' },
        { id: ids[4], status: 'failed' },
        // The rail has received this payout and may still pay it.
        { id: ids[6], status: 'processing' },
      ],
    };
    for (const answer of [first, ...repeats]) {
      expect(answer?.status).toBe(200);
      expect(cancellation.parse(answer?.body)).toEqual(expected);
    }
    expect(await payer.balance()).toEqual({ available: 14_000n, held: 4_000n });
    expect(await payer.events()).toMatchObject({ 'payout.canceled': 3 });

    const replay = await payer.client(`POST /v1/batches/${id}/cancel`, key);
    expect(replay.headers.get('idempotent-replayed')).toBe('true');
    const reused = await payer.client('POST /v1/payouts', { form: payer.item('plain'), ...key });
    expect(reused).toMatchObject({ status: 422, body: { code: 'idempotency_key_reused' } });

    // The batch is canceled once the payouts that the rail received are final too.
    expect(batchIn(await payer.client(`GET /v1/batches/${id}`)).status).toBe('processing');
    await settleByHand(ids[0] ?? '');
    // A single cancellation can still void it at the bank.
    const alone = await payer.client(`POST /v1/payouts/${ids[6]}/cancel`);
    expect(alone).toMatchObject({ status: 200, body: { status: 'canceled' } });
    const batch = await untilBatch(payer.client, id);
    expect(batch.status).toBe('canceled');
    expect(countsOf(batch)).toEqual({ settled: 2, failed: 1, canceled: 4 });
    expect(await payer.client(`POST /v1/batches/${id}/cancel`)).toMatchObject({
      status: 200,
      body: { status: 'canceled', canceled: [...expected.canceled, ids[6]] },
    });
    expect(await payer.events()).toMatchObject({ 'payout.canceled': 4, 'batch.completed': 1 });
    for (const canceled of expected.canceled) {
      await receiver.next(
        ({ body }) => body.includes(`"${canceled}"`) && body.includes('payout.canceled'),
      );
    }
    await receiver.next(({ body }) => body.includes('batch.completed') && body.includes(id));
    const journal = await journalByKey(system);
    const paid = ids.filter((each) => journal.get(each)?.includes('transfer'));
    expect(paid).toEqual(ids.slice(0, 2));
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
  });

  it('cancels 1,200 items at once', async () => {
    const payer = await openBatchPayer(system, 1_200n * 2_000n);
    const id = await sendPaused(
      system,
      payer,
      many(1_200).map((name) => payer.item(name)),
    );
    await untilBatch(payer.client, id, ({ counts }) => counts['processing'] === 1_200);
    const answer = await payer.client(`POST /v1/batches/${id}/cancel`);
    expect(answer).toMatchObject({ status: 200, body: { status: 'canceled' } });
    expect(cancellation.parse(answer.body).canceled).toHaveLength(1_200);
    expect(await payer.balance()).toEqual({ available: 1_200n * 2_000n, held: 0n });
    expect(await heardOf(id)).toBe(0);
  });

  it('is canceled whatever stage its decisions have reached', async () => {
    const payer = await openBatchPayer(system, 1_200n * 2_000n);
    for (const mode of ['best_effort', 'all_or_nothing'] as const) {
      const id = await payer.send(
        many(1_200).map((name) => payer.item(name)),
        mode,
      );
      const answer = await payer.client(`POST /v1/batches/${id}/cancel`);
      expect(answer.status).toBe(200);
      const batch = await untilBatch(payer.client, id);
      expect(batch.status).toBe('canceled');
      const { canceled = 0, settled = 0, ...rest } = countsOf(batch);
      expect(rest).toEqual({});
      expect(canceled + settled).toBe(1_200);
      expect(await heardOf(id)).toBe(settled);
      const left = await payer.balance();
      expect(left.held).toBe(0n);
      await payer.client('POST /v1/test/fund', {
        form: { currency: 'USD', amount: String(settled * 2_000 || 1) },
      });
    }
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
  });

  it('is never one that was already complete', async () => {
    const payer = await openBatchPayer(system, 2_000n);
    const id = await payer.send([payer.item('plain')]);
    await untilBatch(payer.client, id);
    const cancel = () => payer.client(`POST /v1/batches/${id}/cancel`, { idempotencyKey: id });
    const answer = await cancel();
    expect(answer).toMatchObject({ status: 409, body: { code: 'batch_not_cancelable' } });
    expect(textOf(answer, 'received')).toBe('completed');
    const repeated = [answer, await cancel()].map(({ headers }) =>
      headers.get('idempotent-replayed'),
    );
    expect(repeated).toEqual([null, 'true']);
  });

  it('is one that its customer has canceled: an update from elsewhere has no effect', async () => {
    const payer = await openBatchPayer(system, 4_000n);
    const id = await sendPaused(system, payer, [payer.item('one'), payer.item('two')]);
    await untilBatch(payer.client, id, ({ counts }) => counts['processing'] === 2);
    await system.temporal.workflow.getHandle(id).executeUpdate(cancelBatchUpdate);
    expect((await rowsOf(system, id)).map(({ status }) => status)).toEqual([
      'processing',
      'processing',
    ]);
    const canceled = await payer.client(`POST /v1/batches/${id}/cancel`);
    expect(canceled).toMatchObject({ status: 200, body: { counts: { canceled: 2 } } });
  });
});

/** Parks a sent payout because its deadline has passed, and lets an operator settle it. */
async function settleByHand(id: string): Promise<void> {
  await system.database`
    update payouts set settle_by = now() - interval '1 hour' where id = ${id}`;
  const [chunk] = await system.database<{ batchId: string }[]>`
    select batch_id from payouts where id = ${id}`;
  await wakeBatch(system, chunk?.batchId ?? '');
  await untilParked(system, id);
  await command(system, id, { kind: 'markSettled', evidence: 'MT103 seen' });
}

describe('an item that was never sent but that the bank reports as', () => {
  it.each([
    ['settled with a cent less', { type: 'settled', short: 1n }, 'amount_mismatch'],
    ['a duplicate', { type: 'rejected', code: 'AM05', short: 0n }, 'contradiction'],
  ] as const)(
    '%s cannot be ended by one person',
    async (_, { short, ...news }, attentionReason) => {
      const payer = await openBatchPayer(system, 5_000_000n);
      const items = [payer.item('one', { amount: '2000000' }), payer.item('two')];
      const batchId = await sendPaused(system, payer, items);
      const [item] = await untilRows(system, batchId, (rows) =>
        rows.every(({ status }) => status === 'processing'),
      );
      if (item === undefined) throw new Error('The batch has no item.');
      const { id, receiveMinor } = item;
      const amount = String((receiveMinor ?? 0n) - short);
      await callBack(system, [newsOf(item, { ...news, amount })]);
      expect(await untilParked(system, id)).toMatchObject({ attentionReason });
      const balance = await payer.balance();

      const canceled = await payer.client(`POST /v1/payouts/${id}/cancel`);
      expect(canceled).toMatchObject({ status: 409, body: { code: 'payout_not_cancelable' } });
      const byOperator = await operate(system, id, 'cancel');
      expect(byOperator.printed).toMatch(/^refused: The rail may have accepted the payout/m);
      const proposed = await operate(system, id, 'fail');
      expect(proposed.printed).toMatch(/^proposed: /m);
      // Two operators need the statements as well.
      const approve = { kind: 'approve', proposal: proposed.action } as const;
      expect(await command(system, id, approve, 'barbara')).toMatchObject({ outcome: 'refused' });
      expect(await rowOf(system, id)).toMatchObject({ status: 'processing', attentionReason });
      expect(await payer.balance()).toEqual(balance);
    },
  );
});

it('canceling a payout that settled in its batch starts no workflow for it', async () => {
  const payer = await openBatchPayer(system, 100_000n);
  const batchId = await payer.send([payer.item('a')]);
  await untilBatch(payer.client, batchId);
  const [before] = await rowsOf(system, batchId);
  const answer = await payer.client(`POST /v1/payouts/${before?.id}/cancel`);
  expect(answer.status).toBe(409);
  expect(await rowsOf(system, batchId)).toEqual([
    { ...before, cancelRequestedAt: expect.anything() },
  ]);
});
