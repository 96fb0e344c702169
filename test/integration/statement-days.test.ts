import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readStatements } from '../../src/activities/statements.js';
import type { Sql } from '../../src/db/client.js';
import { storeStatement, unreadDays } from '../../src/db/statements.js';
import { QuietRail } from '../fakes/quietRail.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  withoutTriggers,
} from '../servers/database.js';

let test: TestDatabase;
const dayMs = 24 * 60 * 60 * 1000;
const dayOf = (daysAgo: number) =>
  new Date(Date.now() - daysAgo * dayMs).toISOString().slice(0, 10);

beforeAll(async () => {
  test = await createTestDatabase();
  const { account } = await createTestAccount(test.database);
  const { id } = await requestPayout(test.database, account.id);
  await withoutTriggers(
    test.database,
    (sql) => sql`
      update payouts set rail = 'sandbox', requested_at = requested_at - interval '100 days'
       where id = ${id}`,
  );
});
afterAll(() => test.drop());

const rail = 'sandbox';
const read = (sql: Sql, date: string, closed: boolean) =>
  storeStatement(sql, { rail, date, closed, lines: [] });

describe('the days of a statement', () => {
  it('are read from both ends, and a day that stays open does not hold up the others', async () => {
    const [longAgo, lately] = [dayOf(90), dayOf(2)];
    const seen = new Set<string>();
    // From the day before the first payout to today, at most a month per run.
    for (let run = 0; run < 5; run += 1) {
      const days = await unreadDays(test.worker, rail);
      expect(days.length).toBeLessThanOrEqual(31);
      expect(days[0]).toBe(run === 0 ? dayOf(101) : days.toSorted()[0]);
      expect(days.at(-1)).toBe(dayOf(0));
      for (const day of days) {
        seen.add(day);
        const isClosed = day < dayOf(0) && day !== longAgo && day !== lately;
        await read(test.worker, day, isClosed);
      }
    }
    expect(seen.size).toBe(102);
    expect(await unreadDays(test.worker, rail)).toEqual([longAgo, lately, dayOf(0)]);
    await read(test.worker, longAgo, true);
    expect(await unreadDays(test.worker, rail)).toEqual([lately, dayOf(0)]);
  });

  it('are read although older ones can never be read', async () => {
    const openDays = [30, 29, 28, 27, 26, 5, 4].map(dayOf);
    await withoutTriggers(
      test.database,
      (sql) => sql`delete from statements where statement_date::text = any (${openDays})`,
    );
    const spoilt = openDays.slice(0, 5);
    const bank = Object.assign(new QuietRail(), {
      statement: async (date: string) => {
        if (spoilt.includes(date)) throw new Error(`The lines of ${date} do not add up.`);
        return { closed: date !== dayOf(0), lines: [] };
      },
    });
    await expect(readStatements(test.worker, bank)).rejects.toThrow('do not add up');
    expect(await unreadDays(test.worker, rail)).toEqual([...spoilt, dayOf(0)]);
  });

  it('are empty for a rail without payouts', async () => {
    expect(await unreadDays(test.worker, 'another')).toEqual([]);
  });
});
