import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { showBatch } from '../../src/cli/batches.js';
import { eventually } from '../assertions/eventually.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import {
  type BatchPayer,
  countsOf,
  openBatchPayer,
  rowsOf,
  untilBatch,
} from '../fixtures/batchPayer.js';
import { textOf } from '../fixtures/client.js';
import { called, shown } from '../fixtures/operators.js';
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

const unknownBeneficiary = { beneficiary: 'bnf_0nobody' };
const many = (count: number) => Array.from({ length: count }, (_, index) => `n ${index}`);

/** The number of transactions that have debited the items of a batch. */
async function debitsOf(batchId: string): Promise<number> {
  const rows = await system.database`
    select distinct e.xmin::text from ledger_entries e join payouts p on p.id = e.payout_id
     where p.batch_id = ${batchId} and e.kind = 'accept'`;
  return rows.length;
}

describe('too little money for a batch', () => {
  it.each(['first', 'second', 'third'])('refuses the same items in the %s run', async () => {
    const payer = await openBatchPayer(system, 100_000n);
    const amounts = ['40000', '70000', '30000', '25000', '20000', '5000', '10000'];
    const id = await payer.send(amounts.map((amount) => payer.item('plain', { amount })));
    const batch = await untilBatch(payer.client, id);
    expect(countsOf(batch)).toEqual({ settled: 4, failed: 3 });
    const rows = await rowsOf(system, id);
    expect(rows.map(({ status, refusal }) => refusal?.expected ?? status)).toEqual([
      'settled',
      'at most 600.00 USD, the available balance',
      'settled',
      'settled',
      'at most 50.00 USD, the available balance',
      'settled',
      'at most 0.00 USD, the available balance',
    ]);
    expect(rows[1]).toMatchObject({
      statusReason: 'insufficient_funds',
      refusal: { param: 'amount', received: '700.00 USD' },
    });
    expect(await payer.balance()).toEqual({ available: 0n, held: 0n });
  });

  it.each([700, 1_100])('pays the first %i of 1,200 items', async (count) => {
    const payer = await openBatchPayer(system, BigInt(count) * 2_000n);
    const id = await payer.send(many(1_200).map((reference) => payer.item(reference)));
    const batch = await untilBatch(payer.client, id);
    expect(countsOf(batch)).toEqual({ settled: count, failed: 1_200 - count });
    const rows = await rowsOf(system, id);
    expect(rows.filter(({ sourceMinor }) => sourceMinor !== null)).toEqual(rows.slice(0, count));
    expect(new Set(rows.slice(count).map(({ refusal }) => refusal?.code))).toEqual(
      new Set(['insufficient_funds']),
    );
    expect(await payer.balance()).toEqual({ available: 0n, held: 0n });
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
  });

  it('is never spent twice by batches that come at once', async () => {
    const payer = await openBatchPayer(system, 30n * 2_000n);
    const ids = await Promise.all(
      many(4).map(() => payer.send(many(20).map((reference) => payer.item(reference)))),
    );
    const batches = await Promise.all(ids.map((id) => untilBatch(payer.client, id)));
    const settled = batches.reduce((sum, { counts }) => sum + (counts['settled'] ?? 0), 0);
    expect(settled).toBe(30);
    expect(await payer.balance()).toEqual({ available: 0n, held: 0n });
  });
});

describe('a batch of all or nothing', () => {
  it('debits 1,200 items in one decision and settles them', async () => {
    const payer = await openBatchPayer(system, 1_200n * 2_000n);
    const items = many(1_200).map((reference) => payer.item(reference));
    const id = await payer.send(items, 'all_or_nothing');
    const batch = await untilBatch(payer.client, id);
    expect(batch).toMatchObject({ status: 'completed', outcome: 'accepted' });
    expect(countsOf(batch)).toEqual({ settled: 1_200 });
    expect(await debitsOf(id)).toBe(1);
    expect(await payer.balance()).toEqual({ available: 0n, held: 0n });
    expect(await payer.events()).toEqual({
      'payout.sent': 1_200,
      'payout.settled': 1_200,
      'batch.completed': 1,
    });
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
  });

  it('is refused because of some items, moves no money, and sends one event', async () => {
    const payer = await openBatchPayer(system, 1_300n * 2_000n);
    await listen(payer);
    const changes: Readonly<Record<number, Readonly<Record<string, string>>>> = {
      3: unknownBeneficiary,
      999: { amount: '1' },
      1100: { amount: '9000000' },
    };
    const items = many(1_200).map((reference, index) => payer.item(reference, changes[index]));
    const id = await payer.send(items, 'all_or_nothing');
    const batch = await untilBatch(payer.client, id);
    expect(batch).toMatchObject({ status: 'completed', outcome: 'refused', totals: [] });
    expect(countsOf(batch)).toEqual({ failed: 1_200 });
    const rows = await rowsOf(system, id);
    const ownReasons = rows.flatMap(({ statusReason }, index) =>
      statusReason === 'batch_refused' ? [] : [[index, statusReason]],
    );
    expect(ownReasons).toEqual([
      [3, 'beneficiary_not_found'],
      [999, 'amount_too_small'],
      [1_100, 'insufficient_funds'],
    ]);
    expect(await debitsOf(id)).toBe(0);
    expect(await payer.balance()).toEqual({ available: 1_300n * 2_000n, held: 0n });
    expect(await payer.events()).toEqual({ 'batch.completed': 1 });
    const webhook = await receiver.next(({ body }) => body.includes(id));
    expect(JSON.parse(webhook.body)).toMatchObject({
      type: 'batch.completed',
      data: { id, outcome: 'refused', counts: { total: 1_200, failed: 1_200 } },
    });
  });

  it('is refused if each item could be paid alone but not all together', async () => {
    const payer = await openBatchPayer(system, 5_000n);
    const items = many(3).map((reference) => payer.item(reference));
    const id = await payer.send(items, 'all_or_nothing');
    expect(await untilBatch(payer.client, id)).toMatchObject({ outcome: 'refused' });
    const rows = await rowsOf(system, id);
    expect(rows.map(({ statusReason }) => statusReason)).toEqual([
      'batch_refused',
      'batch_refused',
      'insufficient_funds',
    ]);
    expect(await payer.balance()).toEqual({ available: 5_000n, held: 0n });
  });

  it('whose decision fails shows operators why, and can be canceled', async () => {
    const payer = await openBatchPayer(system, 5_000n);
    await system.database.unsafe(`
      create function break_decision() returns trigger language plpgsql as $$
      begin raise exception 'a bug'; end $$;
      create trigger breaks before update of outcome on batches
        for each row when (new.account_id = '${payer.accountId}') execute function break_decision()`);
    const id = await payer.send([payer.item('one'), payer.item('two')], 'all_or_nothing');
    const lines = await eventually('the decision has failed', 20_000, async () => {
      const output = await shown(() => showBatch(called(system, id)));
      return output.includes('after:') ? output : undefined;
    });
    expect(lines).toMatch(/^ {2}decideBatch: attempt \d+, after: a bug/m);
    // A cancellation does not wait for the bug to be mended.
    await payer.client(`POST /v1/batches/${id}/cancel`);
    expect(await untilBatch(payer.client, id)).toMatchObject({ status: 'canceled' });
    expect(await payer.balance()).toEqual({ available: 5_000n, held: 0n });
  });
});

it('the totals of a batch count no refused item beside one that the bank has rejected', async () => {
  const payer = await openBatchPayer(system, 1_000_000n);
  const id = await payer.send([
    ...[payer.item('paid'), payer.item('simulate: reject AC04')],
    payer.item('refused', { amount: '1' }),
  ]);
  const batch = await untilBatch(payer.client, id);
  expect(countsOf(batch)).toEqual({ settled: 1, failed: 2 });
  expect(batch.totals).toMatchObject([{ count: 2, source_amount: '40.00' }]);
});

describe('quotes in a batch', () => {
  const quoted = async ({ client, item }: BatchPayer, reference: string) => {
    const form = {
      source_currency: 'USD',
      destination_currency: 'EUR',
      amount: '10000',
      fixed_side: 'source',
    };
    const quote = textOf(await client('POST /v1/quotes', { form }), 'id');
    const { source_currency: _, amount: __, ...rest } = item(reference);
    return { ...rest, quote };
  };

  it('are used once each beside unquoted items, and refused when expired', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const [first, second, over, used] = await Promise.all(
      many(4).map((reference) => quoted(payer, reference)),
    );
    if (first === undefined || second === undefined) throw new Error('There is no quote.');
    if (over === undefined || used === undefined) throw new Error('There is no quote.');
    await system.database`
      update quotes set created_at = created_at - interval '31 seconds',
                        expires_at = expires_at - interval '31 seconds' where id = ${over.quote}`;
    expect(await payer.client('POST /v1/payouts', { form: used })).toMatchObject({ status: 201 });
    const unknown = { ...first, quote: 'qt_0nothing' };
    const items = [first, payer.item('live'), over, second, used, unknown, payer.item('live')];
    const id = await payer.send(items);
    await untilBatch(payer.client, id);
    const rows = await rowsOf(system, id);
    expect(rows.map(({ status, statusReason }) => statusReason ?? status)).toEqual([
      'settled',
      'settled',
      'quote_expired',
      'settled',
      'quote_used',
      'quote_not_found',
      'settled',
    ]);
    const uses = await system.database`
      select id, used_by from quotes where id = any (${[first.quote, over.quote, second.quote]})
       order by array_position(${[first.quote, over.quote, second.quote]}, id)`;
    expect(uses.map((row) => row['usedBy'])).toEqual([rows[0]?.id, null, rows[3]?.id]);
    const payout = await payer.client(`GET /v1/payouts/${rows[0]?.id}`);
    expect(payout.body).toMatchObject({ source_amount: '100.00', quote: first.quote });
  });

  it('are used by one of the batches that name them at once', async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const items = await Promise.all(many(5).map((reference) => quoted(payer, reference)));
    const ids = await Promise.all(many(4).map(() => payer.send(items)));
    await Promise.all(ids.map((id) => untilBatch(payer.client, id)));
    const rows = (await Promise.all(ids.map((id) => rowsOf(system, id)))).flat();
    const reasons = rows.map(({ status, statusReason }) => statusReason ?? status);
    expect(reasons.filter((reason) => reason === 'settled')).toHaveLength(5);
    expect(reasons.filter((reason) => reason === 'quote_used')).toHaveLength(15);
    expect(await payer.balance()).toEqual({ available: 950_000n, held: 0n });
  });
});

async function listen(payer: BatchPayer): Promise<void> {
  const json = { url: receiver.url, events: ['*'] };
  expect(await payer.client('POST /v1/webhook_endpoints', { json })).toMatchObject({ status: 201 });
}
