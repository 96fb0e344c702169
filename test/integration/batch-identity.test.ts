import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  type BatchPayer,
  countsOf,
  journalByKey,
  openBatchPayer,
  rowsOf,
  untilBatch,
} from '../fixtures/batchPayer.js';
import { type ApiClient, createClient, textOf, untilStatus } from '../fixtures/client.js';
import { startSecondApi } from '../servers/secondApi.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
let second: Awaited<ReturnType<typeof startSecondApi>>;

beforeAll(async () => {
  system = await startSystem();
  second = await startSecondApi(system);
});
afterAll(async () => {
  await second.close();
  await system.stop();
});

const many = (count: number) => Array.from({ length: count }, (_, index) => `n-${index}`);
const page = z.object({
  data: z.array(z.object({ id: z.string(), reference: z.string().nullable() }).loose()),
  has_more: z.boolean(),
});

/** The items of a batch as the API lists them, page by page. */
async function listedItems(client: ApiClient, id: string, limit = 100, filter = '') {
  const items: z.infer<typeof page>['data'] = [];
  for (;;) {
    const last = items.at(-1);
    const after = last === undefined ? '' : `&starting_after=${last.id}`;
    const answer = await client(`GET /v1/batches/${id}/payouts?limit=${limit}${after}${filter}`);
    const { data, has_more: hasMore } = page.parse(answer.body);
    items.push(...data);
    if (!hasMore) return items;
  }
}

/** The number of batches and payouts of the account. */
async function heldBy({ accountId }: BatchPayer) {
  const [row] = await system.database`
    select (select count(*)::int from batches where account_id = ${accountId}) as batches,
           (select count(*)::int from payouts where account_id = ${accountId}) as payouts`;
  return row;
}

/** The number of transfers that the bank made for the account's payouts. */
async function transfersOf({ accountId }: BatchPayer): Promise<number> {
  const rows = await system.database<{ id: string }[]>`
    select id from payouts where account_id = ${accountId}`;
  const journal = await journalByKey(system);
  const transfers = rows.flatMap(
    ({ id }) => journal.get(id)?.filter((t) => t === 'transfer') ?? [],
  );
  return transfers.length;
}

describe('one batch sent more than once', () => {
  it('is one batch, through any API process and even at the same time', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const clients = [payer.client, createClient(second.url, payer.apiKey)];
    const json = { payouts: many(20).map((reference) => payer.item(reference)) };
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        (clients[index % 2] ?? payer.client)('POST /v1/batches', { json, idempotencyKey: 'one' }),
      ),
    );
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(202));
    const replays = answers.filter(({ headers }) => headers.get('idempotent-replayed') === 'true');
    expect(replays).toHaveLength(19);
    const ids = new Set(answers.map((answer) => textOf(answer, 'id')));
    expect(ids.size).toBe(1);
    const [id = ''] = ids;
    expect(countsOf(await untilBatch(payer.client, id))).toEqual({ settled: 20 });
    expect(await heldBy(payer)).toEqual({ batches: 1, payouts: 20 });
    expect(await transfersOf(payer)).toBe(20);
    expect(await payer.events()).toMatchObject({ 'batch.completed': 1, 'payout.settled': 20 });
  });

  it('is refused with different items, and the item is named', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const payouts = many(3).map((reference) => payer.item(reference));
    const first = await payer.client('POST /v1/batches', {
      json: { payouts },
      idempotencyKey: 'one',
    });
    const id = textOf(first, 'id');
    const changed = payouts.with(1, payer.item('n-1', { amount: '2001' }));
    const other = await payer.client('POST /v1/batches', {
      json: { payouts: changed },
      idempotencyKey: 'one',
    });
    expect(other).toMatchObject({
      status: 422,
      body: { code: 'idempotency_key_reused', param: 'payouts[1]', batch: id },
    });
    expect(textOf(other, 'detail')).toContain(id);
    const more = await payer.client('POST /v1/batches', {
      json: { payouts: [...payouts, payer.item('n-3')] },
      idempotencyKey: 'one',
    });
    expect(more).toMatchObject({ status: 422, body: { param: 'payouts[3]' } });
    await untilBatch(payer.client, id);
    expect(await heldBy(payer)).toEqual({ batches: 1, payouts: 3 });
  });
});

it('a batch that an earlier release stored with an item of the same key is still replayed', async () => {
  const payer = await openBatchPayer(system, 1_000_000n);
  const json = { payouts: [payer.item('n-0', { idempotency_key: 'same' })] };
  const send = (idempotencyKey: string) =>
    payer.client('POST /v1/batches', { json, idempotencyKey });
  const id = textOf(await send('first'), 'id');
  // The earlier release bound the key to the batch, and not to the item.
  await system.database`
    delete from idempotency_keys where account_id = ${payer.accountId} and key = 'same'`;
  await system.database`
    update idempotency_keys set key = 'same'
     where account_id = ${payer.accountId} and key = 'first'`;
  const replay = await send('same');
  expect(replay).toMatchObject({ status: 202, body: { id } });
  expect(replay.headers.get('idempotent-replayed')).toBe('true');
  const other = await payer.client('POST /v1/batches', {
    json: { payouts: [...json.payouts, payer.item('n-1')] },
    idempotencyKey: 'same',
  });
  expect(other).toMatchObject({ status: 422, body: { code: 'idempotency_key_reused' } });
  await untilBatch(payer.client, id);
  expect(await heldBy(payer)).toEqual({ batches: 1, payouts: 1 });
});

describe('an item with a key of its own', () => {
  it('that its batch refused is also refused as a single request', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const item = payer.item('n-0');
    const payouts = [
      { ...item, idempotency_key: 'n-0' },
      payer.item('n-1', { amount: '900000000' }),
    ];
    const sent = await payer.client('POST /v1/batches', {
      json: { payouts, mode: 'all_or_nothing' },
    });
    await untilBatch(payer.client, textOf(sent, 'id'));
    const alone = await payer.client('POST /v1/payouts', { json: item, idempotencyKey: 'n-0' });
    expect(alone).toMatchObject({ status: 422, body: { code: 'batch_refused' } });
  });

  it('that was not paid refuses a batch that is paid as a whole, and its preview', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const unpaid = payer.item('n-0', { idempotency_key: 'n-0' });
    const refused = payer.item('n-1', { amount: '900000000' });
    const send = async (payouts: readonly object[], mode: string, rest: object = {}) =>
      payer.client('POST /v1/batches', { json: { payouts, mode, ...rest } });
    const first = await send([unpaid, refused], 'all_or_nothing');
    await untilBatch(payer.client, textOf(first, 'id'));
    const corrected = payer.item('n-1');
    const preview = await send([unpaid, corrected], 'all_or_nothing', { validate_only: true });
    expect(preview.body).toMatchObject({
      outcome: 'refused',
      counts: { existing: 0, refused: 1 },
      refusals: [{ code: 'idempotency_key_reused', param: 'payouts[0][idempotency_key]' }],
    });
    for (const payouts of [[unpaid, corrected], [unpaid]]) {
      const id = textOf(await send(payouts, 'all_or_nothing'), 'id');
      expect(await untilBatch(payer.client, id)).toMatchObject({
        outcome: 'refused',
        counts: { failed: payouts.length },
      });
      const [row] = await rowsOf(system, id);
      expect(row?.refusal).toMatchObject({
        code: 'idempotency_key_reused',
        detail: expect.stringContaining('was not paid'),
      });
    }
    // Item by item, it is the payout that was not paid, as a repeated request is.
    const each = await payer.send([unpaid, corrected]);
    expect(await untilBatch(payer.client, each)).toMatchObject({
      counts: { failed: 1, settled: 1 },
    });
    expect(await transfersOf(payer)).toBe(1);
  });

  it('is one payout in two concurrent batches, whatever the order of the items', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const keyed = many(100).map((reference) =>
      payer.item(reference, { idempotency_key: reference }),
    );
    const [forward, backward] = await Promise.all([
      payer.send(keyed),
      payer.send(keyed.toReversed()),
    ]);
    const batches = await Promise.all(
      [forward, backward].map((id) =>
        untilBatch(payer.client, id, ({ counts }) => counts['settled'] === 100),
      ),
    );
    expect(batches.map(countsOf)).toEqual([{ settled: 100 }, { settled: 100 }]);
    expect(batches[0]?.totals).toEqual(batches[1]?.totals);
    expect(await heldBy(payer)).toEqual({ batches: 2, payouts: 100 });
    expect(await transfersOf(payer)).toBe(100);
    const items = await listedItems(payer.client, forward, 30);
    expect(items.map(({ reference }) => reference)).toEqual(many(100));
    const same = await listedItems(payer.client, backward, 30);
    expect(same.map(({ id }) => id)).toEqual(items.map(({ id }) => id).toReversed());
    await expect.poll(() => payer.events()).toMatchObject({ 'batch.completed': 2 });
  });

  it('refers to the payout of its key, or is refused if it differs from it', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const { client, item } = payer;
    const single = { form: item('single'), idempotencyKey: 'single' };
    const made = textOf(await client('POST /v1/payouts', single), 'id');
    const foreign = { form: item('foreign'), idempotencyKey: 'foreign' };
    await client('POST /v1/payouts', foreign);
    const id = await payer.send([
      item('plain'),
      item('single', { idempotency_key: 'single' }),
      item('foreign', { idempotency_key: 'foreign', amount: '2001' }),
    ]);
    await untilStatus(client, made, 'settled');
    const batch = await untilBatch(client, id);
    expect(countsOf(batch)).toEqual({ settled: 2, failed: 1 });
    expect(batch.totals).toMatchObject([{ count: 2, source_amount: '40.00' }]);
    const items = await listedItems(client, id);
    expect(items[1]).toMatchObject({ id: made, status: 'settled', batch: null });
    expect(items[2]).toMatchObject({ status: 'failed', status_reason: 'idempotency_key_reused' });
    const rows = await rowsOf(system, id);
    expect(rows.map(({ batchIndex }) => batchIndex)).toEqual([0, 2]);
    expect(rows[1]?.refusal).toMatchObject({ param: 'payouts[2][amount]' });
    expect(await heldBy(payer)).toEqual({ batches: 1, payouts: 4 });
    // And vice versa: the single request finds the item.
    const keyed = item('keyed', { idempotency_key: 'keyed' });
    const other = await payer.send([keyed]);
    await untilBatch(client, other);
    const again = await client('POST /v1/payouts', {
      form: item('keyed'),
      idempotencyKey: 'keyed',
    });
    expect(again).toMatchObject({ status: 201, body: { batch: other } });
    expect(again.headers.get('idempotent-replayed')).toBe('true');
  });

  it('that differs in one metadata name is refused with the name as it was sent', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const labelled = (order: string) => ({ ...payer.item('labelled'), metadata: { order } });
    const key = 'labelled';
    await payer.client('POST /v1/payouts', { json: labelled('7'), idempotencyKey: key });
    const payouts = [{ ...labelled('8'), idempotency_key: key }];
    const id = textOf(await payer.client('POST /v1/batches', { json: { payouts } }), 'id');
    await untilBatch(payer.client, id);
    const [row] = await rowsOf(system, id);
    expect(row?.refusal).toMatchObject({ param: 'payouts[0][metadata][order]' });
  });

  it('is one payout when a batch and a single request send it at once', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const { client, item } = payer;
    const keys = many(10);
    const [id] = await Promise.all([
      payer.send(keys.map((key) => item(key, { idempotency_key: key }))),
      ...keys.map((key) => client('POST /v1/payouts', { form: item(key), idempotencyKey: key })),
    ]);
    await untilBatch(client, id, ({ counts }) => counts['settled'] === 10);
    await untilBatch(client, id);
    expect(await heldBy(payer)).toEqual({ batches: 1, payouts: 10 });
    expect(await transfersOf(payer)).toBe(10);
  });

  it('completes a batch that contains only existing payouts, and sends its event', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const items = many(3).map((key) => payer.item(key, { idempotency_key: key }));
    await untilBatch(payer.client, await payer.send(items));
    const id = await payer.send(items.toReversed());
    expect(await untilBatch(payer.client, id)).toMatchObject({
      status: 'completed',
      outcome: 'accepted',
      counts: { total: 3, settled: 3 },
    });
    expect(await heldBy(payer)).toEqual({ batches: 2, payouts: 3 });
    expect(await payer.events()).toMatchObject({ 'batch.completed': 2, 'payout.settled': 3 });
  });
});

describe('the list of the items of a batch', () => {
  it('is in the order of the request on pages of any size, and can be filtered', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const { client, item } = payer;
    const made = item('n-4', { idempotency_key: 'before' });
    await untilBatch(client, await payer.send([made]));
    const references = many(13).map((name, index) =>
      index % 3 === 0 ? 'simulate: reject AC04' : name,
    );
    const id = await payer.send(references.map((name) => (name === 'n-4' ? made : item(name))));
    await untilBatch(client, id);
    for (const limit of [1, 4, 13, 100]) {
      const items = await listedItems(client, id, limit);
      expect(items.map(({ reference }) => reference)).toEqual(references);
    }
    const failed = await listedItems(client, id, 2, '&status=failed');
    expect(failed).toHaveLength(5);
    expect(new Set(failed.map((payout) => payout['status']))).toEqual(new Set(['failed']));
    const settled = await listedItems(client, id, 3, '&status=settled');
    expect(settled.map(({ reference }) => reference)).toEqual(
      references.filter((name) => name.startsWith('n-')),
    );
    expect(await listedItems(client, id, 3, '&status=returned')).toEqual([]);
  });

  it('is invisible to another account, and refuses cursors of other lists', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const other = await openBatchPayer(system, 1_000_000n);
    const ownId = await payer.send([payer.item('mine')]);
    const foreignId = await other.send([other.item('theirs')]);
    const { client } = payer;
    for (const request of [
      `GET /v1/batches/${foreignId}`,
      `GET /v1/batches/${foreignId}/payouts`,
      `POST /v1/batches/${foreignId}/cancel`,
    ]) {
      expect(await client(request)).toMatchObject({ status: 404 });
    }
    const [foreign] = await rowsOf(system, foreignId);
    const elsewhere = await client('POST /v1/payouts', { form: payer.item('single') });
    for (const cursor of [foreign?.id, textOf(elsewhere, 'id'), 'po_0nothing']) {
      expect(
        await client(`GET /v1/batches/${ownId}/payouts?starting_after=${cursor}`),
      ).toMatchObject({
        status: 422,
        body: { code: 'cursor_not_found', param: 'starting_after' },
      });
    }
    await Promise.all([untilBatch(client, ownId), untilBatch(other.client, foreignId)]);
  });
});
