import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { showArrivals } from '../../src/cli/arrivals.js';
import { connectDatabase, type Database, transaction } from '../../src/db/client.js';
import { estimatedArrival } from '../../src/domain/arrival.js';
import { QuietRail } from '../fakes/quietRail.js';
import { called } from '../fixtures/operators.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';

const minuteMs = 60_000;
const dayMs = 24 * 60 * minuteMs;
const daysAgo = (days: number) => new Date(Date.now() - days * dayMs);

describe('corridor arrivals', () => {
  let test: TestDatabase;
  let operator: Database;
  /** An accepted payout from dollars to euros, of which the others are copies. */
  let model: string;

  beforeAll(async () => {
    test = await createTestDatabase();
    const url = test.urls.operator;
    operator = connectDatabase({ url, poolSize: 1, applicationName: 'test' });
    expect(await arrivals()).toEqual([]);
    const { account } = await createTestAccount(test.database);
    ({ id: model } = await requestPayout(test.database, account.id));
    const { decidePayouts } = payoutActivities(test.worker, new QuietRail());
    await decidePayouts({ driver: model, ids: [model], workflowAgeMs: 0 });
  });
  afterAll(async () => {
    await operator.end({ timeout: 5 });
    await test.drop();
  });

  /** The cells of each line after the header, as an operator sees them. */
  async function arrivals(days = '30'): Promise<readonly (readonly string[])[]> {
    const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
    try {
      await showArrivals(called({ database: operator }, '', { days }));
      return log.mock.calls.slice(1).map(([line]) => String(line).split(/ {2,}/));
    } finally {
      log.mockRestore();
    }
  }

  /** Writes a copy of the model that was accepted at this time and has settled, or is open. */
  async function paid(acceptedAt: Date, settledAt: Date | null): Promise<void> {
    await transaction(test.database, async (sql) => {
      // Without the triggers, which would write the current time.
      await sql`set local session_replication_role = replica`;
      const [row] = await sql<{ id: string }[]>`
        insert into payouts
        select (jsonb_populate_record(p, jsonb_build_object(
          'id', 'po_' || gen_random_uuid(), 'processing_since', ${acceptedAt}::timestamptz,
          'settled_at', ${settledAt}::timestamptz, 'settled_since', ${settledAt}::timestamptz,
          'status', case when ${settledAt}::timestamptz is null then 'sent' else 'settled' end))).*
          from payouts p where id = ${model}
        returning id`;
      if (settledAt === null) return;
      await sql`
        insert into ledger_entries (payout_id, kind, from_ids, to_ids, amounts_minor, account_id,
          currency, created_at)
        select ${row?.id ?? ''}, 'settle', from_ids, to_ids, amounts_minor, account_id, currency,
               ${settledAt}::timestamptz
          from ledger_entries where payout_id = ${model} and kind = 'accept'`;
    });
  }

  // These tests fail when the calendars have run out: then run tools/bankCalendars.py.
  it('counts settled and open payouts, and those past their estimate', async () => {
    expect(await arrivals()).toEqual([['EUR', 'test', 'open', '1', '0']]);
    const accepted = daysAgo(25);
    const estimate = estimatedArrival('USD', 'EUR', accepted);
    if (estimate === null) throw new Error('There is no estimate.');
    await paid(accepted, new Date(accepted.getTime() + minuteMs));
    await paid(accepted, estimate);
    expect(await arrivals()).toEqual([
      ['EUR', 'test', 'settled', '2', '0'],
      ['EUR', 'test', 'open', '1', '0'],
    ]);
    // Of two payouts in the same half hour, one is on time and the other late by a millisecond.
    await paid(accepted, new Date(estimate.getTime() + 1));
    await paid(accepted, new Date(estimate.getTime() + 5 * 60 * minuteMs));
    await paid(accepted, null);
    const openHours = Math.ceil((Date.now() - estimate.getTime()) / (60 * minuteMs));
    const [settled, open] = await arrivals();
    expect(settled).toEqual(['EUR', 'test', 'settled', '4', '2', '5 h']);
    expect(open?.slice(0, 5)).toEqual(['EUR', 'test', 'open', '2', '1']);
    expect([`${openHours} h`, `${openHours + 1} h`]).toContain(open?.[5]);
  });

  it('looks back as far as --days says', async () => {
    const settledOf = async (days: string) =>
      (await arrivals(days)).find(([, , state]) => state === 'settled')?.[3];
    const before = Number(await settledOf('366'));
    await paid(daysAgo(41), daysAgo(40));
    expect(await settledOf('30')).toBe(`${before}`);
    expect(await settledOf('41')).toBe(`${before + 1}`);
    for (const days of ['0', '367', '-1', '1.5', 'all', '']) {
      await expect(arrivals(days), days).rejects.toThrow(
        '--days expects a number of days, 1 to 366.',
      );
    }
  });
});
