import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { simulateOrders } from '../../sandbox/bank/orders.js';
import type { PayoutRow } from '../../src/db/payouts.js';
import { statusHistory } from '../../src/domain/payout.js';
import { expectedPostings, postingsOf } from '../assertions/postings.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import {
  type BatchPayer,
  countsOf,
  journalByKey,
  openBatchPayer,
  untilBatch,
  untilRows,
} from '../fixtures/batchPayer.js';
import { textOf } from '../fixtures/client.js';
import { type Ending, orderEndings, settled } from '../fixtures/orderEndings.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

const plain: Ending = { ...settled, reference: 'plain' };
const itemsOfEach = 12;
const webhookBody = z.object({
  id: z.string(),
  type: z.string(),
  data: z.object({ id: z.string(), status: z.string() }),
});

let system: TestSystem;
let receiver: Receiver;
let payer: BatchPayer;

beforeAll(async () => {
  system = await startSystem();
  receiver = await startReceiver();
  payer = await openBatchPayer(system, 1_000_000n);
});
afterAll(async () => {
  await receiver.close();
  await system.stop();
});

describe('a batch with every instruction to the sandbox bank', () => {
  // The orders are interleaved, so that failing items are next to successful ones.
  const endings = Array.from({ length: itemsOfEach }, () => [
    plain,
    ...Object.values(orderEndings),
  ]).flat();

  it('covers each of them', () => {
    expect(Object.keys(orderEndings)).toEqual(simulateOrders.map(({ order }) => order));
  });

  it('ends item by item as the table says, with each step announced and booked once', async () => {
    const endpoint = await payer.client('POST /v1/webhook_endpoints', {
      json: { url: receiver.url, events: ['*'] },
    });
    const id = await payer.send(endings.map(({ reference }) => payer.item(reference)));
    // The counters must add up at every poll.
    await untilBatch(payer.client, id, (batch) => sameCounts(countsOf(batch), endings));
    const rows = await untilRows(system, id, (all) =>
      all.every((row, index) => hasEnded(row, endings[index] ?? plain)),
    );

    const journal = await journalByKey(system);
    for (const [index, row] of rows.entries()) {
      const ending = endings[index] ?? plain;
      expect(statusHistory(row).map(({ status }) => status)).toEqual(ending.history);
      expect(row.statusReason).toBe(ending.reason);
      expect(journal.get(row.id) ?? []).toEqual(ending.journal);
      expect(await postingsOf(system.database, row.id)).toEqual(postingsFor(row, ending));
    }
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
    const announced = endings.flatMap(({ history }) => history.slice(2).map((s) => `payout.${s}`));
    expect(await payer.events()).toEqual(tally(announced));
    await expectWebhooks(textOf(endpoint, 'secret'), rows);
    // Payouts that only wait need no operator: the chunk continues with them.
    expect(rows.filter((row) => row.driver === row.id).map((row) => row.reference)).toEqual(
      Array(itemsOfEach).fill('simulate: wrong amount'),
    );
    const batch = await payer.client(`GET /v1/batches/${id}`);
    expect(batch.body).toMatchObject({ status: 'processing', completed_at: null });
  });
});

function hasEnded(row: PayoutRow, { history, attention }: Ending): boolean {
  return row.status === history.at(-1) && row.attentionReason === (attention ?? null)
    ? attention === undefined || row.driver === row.id
    : false;
}

function tally(names: readonly string[]): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

function sameCounts(counts: Readonly<Record<string, number>>, endings: readonly Ending[]): boolean {
  const due = tally(endings.map(({ history }) => history.at(-1) ?? ''));
  return Object.entries(due).every(([status, count]) => counts[status] === count);
}

function postingsFor(row: PayoutRow, { entries }: Ending) {
  const expected = expectedPostings(row);
  return {
    accept: expected.accept,
    ...Object.fromEntries(entries.map((kind) => [kind, expected[kind]])),
  };
}

/** Verifies that each event arrived once, signed, with the payout as it was at that time. */
async function expectWebhooks(secret: string, rows: readonly PayoutRow[]): Promise<void> {
  const due = rows.flatMap((row) =>
    statusHistory(row)
      .slice(2)
      .map(({ status }) => `${row.id} payout.${status} ${status}`),
  );
  await expect.poll(() => receiver.received.length, { timeout: 20_000 }).toBe(due.length);
  const bodies = receiver.received.map(({ body, headers }) =>
    webhookBody.parse(new Webhook(secret).verify(body, headers)),
  );
  const received = bodies.map(({ type, data }) => `${data.id} ${type} ${data.status}`);
  expect(received.sort()).toEqual(due.sort());
  expect(new Set(bodies.map(({ id }) => id)).size).toBe(bodies.length);
}
