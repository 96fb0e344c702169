import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { transaction } from '../../src/db/client.js';
import { stuckPayouts } from '../../src/db/operatorLists.js';
import { eventually } from '../assertions/eventually.js';
import {
  countsOf,
  journalByKey,
  openBatchPayer,
  rowsOf,
  untilBatch,
  untilRows,
  wakeBatch,
} from '../fixtures/batchPayer.js';
import { command } from '../fixtures/operators.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system.stop());

const unanswered = 'simulate: timeout then nothing';
const silent = 'simulate: never settle';
const misreported = 'simulate: wrong amount';
const manyOf = (reference: string, count: number) => Array.from({ length: count }, () => reference);

/** The number of a batch's payouts shown to operators, for any reason or for one. */
async function countShown(batchId: string, reason?: string): Promise<number> {
  const shown = `BatchId = '${batchId}' and NeedsAttention = true and ExecutionStatus = 'Running'`;
  const query = reason === undefined ? shown : `${shown} and AttentionReason = '${reason}'`;
  return (await system.temporal.workflow.count(query)).count;
}

/** Waits until operators can find all these payouts by their workflows and in the list. */
async function untilShown(batchId: string, ids: readonly string[], reason: string): Promise<void> {
  await eventually(`${ids.length} payouts need attention for ${reason}`, 100_000, async () =>
    (await countShown(batchId, reason)) === ids.length ? true : undefined,
  );
  const parked = new Map((await stuckPayouts(system.database, {})).map((row) => [row.id, row]));
  expect(new Set(ids.map((id) => parked.get(id)?.attentionReason))).toEqual(new Set([reason]));
  const [first = ''] = ids;
  const { status, type } = await system.temporal.workflow.getHandle(first).describe();
  expect([type, status.name]).toEqual(['payout', 'RUNNING']);
}

/** Timeout of the largest batch here, which takes 50 s on two idle cores: time for a machine five times as busy. */
const patientMs = 250_000;

describe('items that a batch cannot complete', () => {
  it('are completed by the decisions of operators', async () => {
    const payer = await openBatchPayer(system, 8_000n);
    const references = [misreported, unanswered, silent, 'plain'];
    const id = await payer.send(references.map((name) => payer.item(name)));
    await untilBatch(
      payer.client,
      id,
      (batch) => countsOf(batch)['sent'] === 2 && countsOf(batch)['settled'] === 1,
    );
    const [first = '', second = '', third = ''] = (await rowsOf(system, id)).map((row) => row.id);
    // The bank remembers keys for a day.
    await system.database`
      update payouts set submit_started_at = submit_started_at - interval '25 hours'
       where id = ${second}`;
    await system.database`
      update payouts set settle_by = now() - interval '1 hour' where id = ${third}`;
    await wakeBatch(system, id);
    await untilShown(id, [first], 'amount_mismatch');
    await untilShown(id, [second], 'outcome_unknown');
    await untilShown(id, [third], 'settle_by_passed');

    const settles = { kind: 'markSettled', evidence: 'MT103 seen' } as const;
    const releases = (statementDate: string | null) =>
      command(system, second, { kind: 'failAndRelease', statementDate });
    expect(await command(system, first, settles)).toMatchObject({ outcome: 'done' });
    // The bank may have forgotten the key, so that a successful void now would prove nothing.
    expect(await releases(null)).toMatchObject({ outcome: 'refused' });
    expect(await releases(await closeStatements(second))).toMatchObject({ outcome: 'done' });
    expect(await payer.events()).not.toHaveProperty(['batch.completed']);
    expect(await command(system, third, settles)).toMatchObject({ outcome: 'done' });
    const batch = await untilBatch(payer.client, id);
    expect(batch.status).toBe('completed');
    expect(countsOf(batch)).toEqual({ settled: 3, failed: 1 });
    expect(await payer.events()).toMatchObject({
      'batch.completed': 1,
      'payout.settled': 3,
      'payout.failed': 1,
    });
    expect(await payer.balance()).toEqual({ available: 2_000n, held: 0n });
    await expect.poll(() => countShown(id), { timeout: 20_000 }).toBe(0);
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
  });

  it('are handed to workflows of their own by the hundred, and the rest goes on', {
    timeout: patientMs,
  }, async () => {
    const payer = await openBatchPayer(system, 1_000_000n);
    const references = [
      ...manyOf(misreported, 200),
      ...manyOf(unanswered, 100),
      ...manyOf(silent, 50),
      ...manyOf('plain', 10),
    ];
    const id = await payer.send(references.map((name) => payer.item(name)));
    const { client } = payer;
    await untilBatch(client, id, (batch) => {
      const { sent, settled, processing } = countsOf(batch);
      return sent === 250 && settled === 10 && processing === 100;
    });
    const ids = (await rowsOf(system, id)).map((row) => row.id);
    await untilShown(id, ids.slice(0, 200), 'amount_mismatch');
    // Payouts that only wait stay with their chunk.
    const waiting = (await rowsOf(system, id)).slice(200, 350);
    expect(new Set(waiting.map(({ driver }) => driver))).toEqual(new Set([`${id}/0`]));

    await system.database`
      update payouts set settle_by = now() - interval '1 hour' where id = any (${ids.slice(300, 350)})`;
    // Retried after a deadlock, because the worker locks the rows in another order.
    await transaction(
      system.database,
      (sql) => sql`
        update payouts set submit_started_at = now() - interval '11 minutes'
         where id = any (${ids.slice(200, 300)})`,
    );
    await wakeBatch(system, id);
    await untilShown(id, ids.slice(300, 350), 'settle_by_passed');
    const rows = await untilRows(system, id, (all) =>
      all.slice(200, 300).every((row) => row.driver === row.id),
    );
    // The bank may still have these, so they are looked up, and not parked yet.
    expect(new Set(rows.slice(200, 300).map(statusAndReason))).toEqual(
      new Set(['processing null']),
    );
    const [one = ''] = ids.slice(200);
    const canceled = await client(`POST /v1/payouts/${one}/cancel`);
    expect(canceled).toMatchObject({ status: 200, body: { status: 'canceled' } });

    expect(countsOf(await untilBatch(client, id, () => true))).toEqual({
      sent: 250,
      settled: 10,
      processing: 99,
      canceled: 1,
    });
    const transfers = [...(await journalByKey(system)).values()].map(
      (types) => types.filter((type) => type === 'transfer').length,
    );
    expect(Math.max(...transfers)).toBe(1);
    expect(await unbalancedCurrencies(system.database)).toEqual([]);
  });
});

/** As if the payout was sent eight days ago and all days since were closed; returns the last day. */
async function closeStatements(id: string): Promise<string> {
  await system.database`
    update payouts set submit_started_at = now() - interval '8 days',
           last_sent_at = now() - interval '8 days' where id = ${id}`;
  const days = await system.database<{ day: string }[]>`
    insert into statements (rail, statement_date)
    select 'sandbox', day::date
      from generate_series(now() - interval '10 days', now() - interval '1 day', '1 day') as day
    returning statement_date::text as day`;
  return days.at(-1)?.day ?? '';
}

function statusAndReason({
  status,
  attentionReason,
}: {
  readonly status: string;
  readonly attentionReason: string | null;
}): string {
  return `${status} ${attentionReason}`;
}
