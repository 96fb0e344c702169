import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { readStatements } from '../../src/activities/statements.js';
import { reconcile } from '../../src/cli/reconcile.js';
import { transaction } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { listBalanceBreaks } from '../../src/db/ledger.js';
import { storeRailEvents } from '../../src/db/railInbox.js';
import { listBreaks, movementTotals, storeStatement, unreadDays } from '../../src/db/statements.js';
import { mostMinor } from '../../src/domain/money.js';
import type { Rail } from '../../src/rails/rail.js';
import { callbackBody, lookupAnswer } from '../../src/rails/sandbox/wire.js';
import { QuietRail } from '../fakes/quietRail.js';
import { attempt } from '../fixtures/attempt.js';
import { called } from '../fixtures/operators.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { payoutOf, requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  withoutTriggers,
} from '../servers/database.js';

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

describe('the largest sums', () => {
  it('given to two test accounts leave every balance comparable with its postings', async () => {
    await createTestAccount(test.database, { funds: { XAF: mostMinor } });
    await createTestAccount(test.database, { funds: { XAF: mostMinor } });
    expect(await listBalanceBreaks(test.worker)).toEqual([]);
  });
});

describe('a settlement reported by the bank', () => {
  it('at the last moment of the year 9999 in another time zone is still recorded', async () => {
    const rail = new QuietRail();
    const activities = payoutActivities(test.worker, rail);
    const { account } = await createTestAccount(test.database);
    const { id } = await requestPayout(test.database, account.id);
    const driven = { driver: id, ids: [id] };
    await activities.decidePayouts({ ...driven, workflowAgeMs: 0 });
    await attempt(() => activities.submitPayouts(driven));
    const { receiveMinor } = await payoutOf(test.database, account.id, id);
    const { events } = callbackBody.parse({
      events: [
        {
          id: `e:${id}`,
          key: id,
          type: 'settled',
          amount: String(receiveMinor),
          currency: 'EUR',
          at: '9999-12-31T23:59:59-05:00',
        },
      ],
    });
    await storeRailEvents(test.api, 'sandbox', events);
    await attempt(() => activities.applyRailEvents(driven));
    expect(await payoutOf(test.database, account.id, id)).toMatchObject({ status: 'settled' });
  });
});

it('a rejection keeps the sum that it states, because it may be of another order', () => {
  const code = { type: 'rejected', code: 'AC04' } as const;
  const event = { id: 'e', key: 'po_1', ...code, amount: '7', currency: 'JPY' };
  const { events } = callbackBody.parse({ events: [event] });
  const sum = { amountMinor: 7n, currency: 'JPY' };
  expect(events.map(({ report }) => report)).toEqual([{ kind: 'rejected', code: 'AC04', ...sum }]);
  const found = { key: 'po_1', state: 'rejected', code: 'AC04' } as const;
  const { results } = lookupAnswer.parse({
    results: [{ ...found, amount: '7', currency: 'JPY' }, { ...found, amount: '7' }, found],
  });
  const unstated = { key: 'po_1', kind: 'rejected', code: 'AC04' };
  expect(results).toEqual([{ ...unstated, ...sum }, unstated, unstated]);
});

describe('a line of a statement', () => {
  it('in an unknown currency is a break like any other', async () => {
    const at = new Date();
    const line = {
      key: newId('payout'),
      bankReference: 'bank-1',
      direction: 'debit',
      amountMinor: 1_234n,
      currency: 'RUR',
      bookedAt: at.toISOString(),
    } as const;
    const date = at.toISOString().slice(0, 10);
    const statement = { rail: 'another', date, closed: false, lines: [line] };
    await transaction(test.worker, (sql) => storeStatement(sql, statement));
    const log = vi.spyOn(console, 'log').mockReturnValue();
    const isEven = await reconcile(called(test, '')).finally(() => log.mockRestore());
    expect(isEven).toBe(false);
  });

  it('of the largest sum leaves the statements comparable, even if there are two of them', async () => {
    const largest = 2n ** 63n - 1n;
    const at = new Date();
    const line = {
      ...{ key: newId('payout'), bankReference: 'bank-1', direction: 'credit' as const },
      ...{ amountMinor: largest, currency: 'EUR', bookedAt: at.toISOString() },
    };
    const date = at.toISOString().slice(0, 10);
    const statement = { rail: 'a third', date, closed: true, lines: [line, line] };
    await transaction(test.worker, (sql) => storeStatement(sql, statement));
    const found = (await listBreaks(test.worker, 10)).filter(
      ({ payoutId }) => payoutId === line.key,
    );
    expect(found).toMatchObject([{ kind: 'no such payout', bankMinor: largest }]);
    expect(await movementTotals(test.worker)).toContainEqual(
      expect.objectContaining({ currency: 'EUR', direction: 'credit', bankMinor: largest }),
    );
  });
});

describe('a day of a statement that cannot be read', () => {
  it('does not delay the other days', async () => {
    const { account } = await createTestAccount(test.database);
    const { id } = await requestPayout(test.database, account.id);
    await withoutTriggers(
      test.database,
      (sql) => sql`
        update payouts set rail = 'sandbox', requested_at = requested_at - interval '5 days'
         where id = ${id}`,
    );
    const [first = ''] = await unreadDays(test.worker, 'sandbox');
    const statement: Rail['statement'] = async (date) => {
      if (date === first) throw new Error('The day cannot be read.');
      return { closed: true, lines: [] };
    };
    const rail = Object.assign(new QuietRail(), { statement });
    await expect(readStatements(test.worker, rail)).rejects.toThrow('cannot be read');
    expect(await unreadDays(test.worker, 'sandbox')).toEqual([first]);
    // Nor does it prevent the release of a hold whose order was sent later.
    const later = new Date(Date.parse(first) + 24 * 60 * 60_000).toISOString().slice(0, 10);
    await readStatements(test.worker, rail, later);
  });
});
