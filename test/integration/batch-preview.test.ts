import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import {
  type BatchPayer,
  type Item,
  openBatchPayer,
  rowsOf,
  untilBatch,
} from '../fixtures/batchPayer.js';
import { textOf, untilStatus } from '../fixtures/client.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

const preview = z.object({
  object: z.literal('batch_preview'),
  outcome: z.string(),
  counts: z.record(z.string(), z.number()),
  totals: z.array(z.record(z.string(), z.union([z.string(), z.number()]))),
  refusals: z.array(
    z.object({
      index: z.number(),
      code: z.string(),
      param: z.string().optional(),
      expected: z.string().optional(),
      received: z.string().optional(),
    }),
  ),
});

async function previewOf(payer: BatchPayer, payouts: readonly Item[], mode = 'best_effort') {
  const json = { payouts, mode, validate_only: true };
  const answer = await payer.client('POST /v1/batches', { json, idempotencyKey: 'preview' });
  expect(answer.status).toBe(200);
  return preview.parse(answer.body);
}

/** The number of rows in every table. */
async function rowCounts(): Promise<Readonly<Record<string, number>>> {
  const { database } = system;
  const tables = await database<{ name: string }[]>`
    select table_name as name from information_schema.tables
     where table_schema = 'public' and table_type = 'BASE TABLE' order by 1`;
  const counts: Record<string, number> = {};
  for (const { name } of tables) {
    const [row] = await database<{ count: number }[]>`
      select count(*)::int as count from ${database(name)}`;
    counts[name] = row?.count ?? 0;
  }
  return counts;
}

describe('a batch that is only validated', () => {
  it('stores nothing and predicts the outcome of the same batch', async () => {
    const payer = await openBatchPayer(system, 100_000n);
    const { client, item } = payer;
    for (const idempotencyKey of ['before', 'other']) {
      const form = item(`made ${idempotencyKey}`);
      const made = await client('POST /v1/payouts', { form, idempotencyKey });
      await untilStatus(client, textOf(made, 'id'), 'settled');
    }
    const { available } = await payer.balance();
    const quote = await client('POST /v1/quotes', {
      form: {
        source_currency: 'USD',
        destination_currency: 'EUR',
        amount: '10000',
        fixed_side: 'destination',
      },
    });
    const { source_currency: _, amount: __, ...bare } = item('quoted');
    const payouts: readonly Item[] = [
      item('plain'),
      item('made before', { idempotency_key: 'before' }),
      item('another', { idempotency_key: 'other' }),
      { ...bare, quote: textOf(quote, 'id') },
      { ...bare, quote: 'qt_0nothing' },
      item('too much', { amount: '9900000' }),
      item('nobody', { beneficiary: 'bnf_0nobody' }),
      item('wrong', { destination_currency: 'GBP' }),
      item('fixed', { amount: '5000', fixed_side: 'destination' }),
      item('too little', { amount: '1' }),
      item('too dear by now', { amount: '80000' }),
    ];
    const rows = await rowCounts();
    const previewed = await previewOf(payer, payouts);
    expect(await rowCounts()).toEqual(rows);
    expect(Object.keys(rows).length).toBeGreaterThan(10);
    expect(previewed.counts).toEqual({ total: 11, accepted: 3, refused: 7, existing: 1 });
    expect(previewed.refusals.map(({ index, code, param }) => [index, code, param])).toEqual([
      [2, 'idempotency_key_reused', 'payouts[2][reference]'],
      [4, 'quote_not_found', 'payouts[4][quote]'],
      [5, 'insufficient_funds', 'payouts[5][amount]'],
      [6, 'beneficiary_not_found', 'payouts[6][beneficiary]'],
      [7, 'currency_mismatch', 'payouts[7][destination_currency]'],
      [9, 'amount_too_small', 'payouts[9][amount]'],
      [10, 'insufficient_funds', 'payouts[10][amount]'],
    ]);

    const id = await payer.send(payouts);
    const batch = await untilBatch(client, id);
    // An item that refers to an earlier payout counts in the batch, but adds no amount to it.
    expect(batch.counts).toMatchObject({ total: 11, settled: 4, failed: 7 });
    const own = await rowsOf(system, id);
    const sum = (name: 'sourceMinor' | 'feeMinor' | 'receiveMinor') =>
      decimal(own.reduce((all, row) => all + (row[name] ?? 0n), 0n));
    expect(previewed.totals).toEqual([
      {
        source_currency: 'USD',
        destination_currency: 'EUR',
        count: 3,
        source_amount: sum('sourceMinor'),
        fee: sum('feeMinor'),
        receive_amount: sum('receiveMinor'),
      },
    ]);
    const refused = own.filter(({ refusal }) => refusal !== null);
    expect(refused.map(({ batchIndex, refusal }) => summaryOf(batchIndex, refusal))).toEqual(
      previewed.refusals.map((refusal) => summaryOf(refusal.index, refusal)),
    );
    expect((await payer.balance()).available).toBe(
      available - own.reduce((all, row) => all + (row.sourceMinor ?? 0n), 0n),
    );
  });

  it('with an item that has the key of the request predicts the outcome of the batch', async () => {
    const payer = await openBatchPayer(system, 100_000n);
    const payouts = [payer.item('July', { idempotency_key: 'preview' })];
    const send = (validate_only: boolean) =>
      payer.client('POST /v1/batches', {
        json: { payouts, validate_only },
        idempotencyKey: 'preview',
      });
    const refused = {
      status: 400,
      body: {
        param: 'payouts[0][idempotency_key]',
        detail: expect.stringContaining('The batch itself has the same idempotency_key.'),
      },
    };
    expect(await send(true)).toMatchObject(refused);
    expect(await send(false)).toMatchObject(refused);
  });

  it('is refused as a whole where all or nothing is asked for', async () => {
    const payer = await openBatchPayer(system, 5_000n);
    const items = ['a', 'b', 'c'].map((reference) => payer.item(reference));
    expect(await previewOf(payer, items.slice(0, 2), 'all_or_nothing')).toMatchObject({
      outcome: 'accepted',
      refusals: [],
    });
    const refused = await previewOf(payer, items, 'all_or_nothing');
    expect(refused).toMatchObject({ outcome: 'refused', refusals: [{ index: 2 }] });
    const batch = await untilBatch(payer.client, await payer.send(items, 'all_or_nothing'));
    expect(batch.outcome).toBe('refused');
  });

  it('predicts how the batch decides 1,200 items', async () => {
    const payer = await openBatchPayer(system, 1_100n * 2_000n);
    const items = Array.from({ length: 1_200 }, (_, index) => payer.item(`n ${index}`));
    const previewed = await previewOf(payer, items);
    expect(previewed.counts).toEqual({ total: 1_200, accepted: 1_100, refused: 100, existing: 0 });
    const batch = await untilBatch(payer.client, await payer.send(items));
    expect(batch.totals).toEqual(previewed.totals);
  });
});

function summaryOf(
  index: number | null,
  refusal: {
    readonly code: string;
    readonly expected?: string | undefined;
    readonly received?: string | undefined;
  } | null,
) {
  return [index, refusal?.code, refusal?.expected, refusal?.received];
}

/** Formats minor units of a two-decimal currency as the API does. */
function decimal(minor: bigint): string {
  const digits = minor.toString().padStart(3, '0');
  return `${digits.slice(0, -2)}.${digits.slice(-2)}`;
}
