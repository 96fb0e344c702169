import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { showExposure } from '../../src/cli/exposure.js';
import { exactlyOne } from '../../src/db/client.js';
import { storeRates } from '../../src/db/rates.js';
import { referenceSource } from '../../src/rates/reference.js';
import { QuietRail } from '../fakes/quietRail.js';
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

/** The cells of each line after the header. */
async function exposure(): Promise<readonly (readonly string[])[]> {
  const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
  try {
    await showExposure(called(test, ''));
    const lines = log.mock.calls.map(([line]) => String(line));
    // In a table each column begins at the same position in every line.
    const start = lines[0]?.indexOf('promised') ?? 0;
    for (const line of lines.slice(1)) expect(line.slice(start)).toMatch(/^\d/);
    return lines.slice(1).map((line) => line.split(/ {2,}/));
  } finally {
    log.mockRestore();
  }
}

/** A payout of 1,250.00 USD after its decision. */
async function accepted(accountId: string) {
  const { id } = await requestPayout(test.database, accountId);
  const { decidePayouts } = payoutActivities(test.worker, new QuietRail());
  await decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 });
  return payoutOf(test.database, accountId, id);
}

it('the exposure is the exact sum of open payouts at current rates', async () => {
  const { account } = await createTestAccount(test.database);
  expect(await exposure()).toEqual([]);
  await requestPayout(test.database, account.id);
  expect(await exposure()).toEqual([]);
  const rows = [await accepted(account.id), await accepted(account.id), await accepted(account.id)];
  const ended = exactlyOne(rows[2]);
  await test.worker`update payouts set status = 'failed' where id = ${ended.id}`;
  const { netMinor, receiveMinor, rate } = exactlyOne(rows[0]);
  const [net, promised] = [2n * (netMinor ?? 0n), 2n * (receiveMinor ?? 0n)];

  // From now on a euro costs two dollars, so that every figure can be calculated by hand.
  const { asOf, perEuro } = await referenceSource.fetch();
  await storeRates(
    test.worker,
    { provider: referenceSource.provider, isForTests: false },
    {
      asOf: new Date(asOf.getTime() + 1000),
      perEuro: new Map([...perEuro, ['USD', '2']]),
    },
  );
  const waiting = await test.database<{ id: bigint }[]>`select id from waiting_rates`;
  await test.database`
    insert into rate_decisions (rate_id, outcome, operator, reason)
    values (${waiting[0]?.id ?? 0n}, 'accepted', 'grace', 'a test')`;
  await test.database`select take_accepted_rates('{USD}')`;
  const [line, ...rest] = await exposure();
  expect(rest).toEqual([]);
  const cents = (text = '') => BigInt(text.replaceAll(/[,.]| EUR/g, ''));
  expect(line?.slice(0, 3)).toEqual(['USD to EUR', 'test', '2']);
  expect(cents(line?.[3])).toBe(promised);
  expect(cents(line?.[5])).toBe(net / 2n);
  expect(cents(line?.[6])).toBe(net / 2n - promised);
  // The effect of rounding down each payout on the rate is below its ninth digit here.
  expect(line?.[4]).toMatch(/^0\.\d{12}$/);
  const average = BigInt((line?.[4] ?? '').replace('0.', ''));
  expect((average * net + net / 2n) / 10n ** 12n).toBe(promised);
  expect(line?.[4]?.slice(0, 5)).toBe(rate?.slice(0, 5));

  // Sums of test accounts may have more digits than a rate: quadrillions, for example.
  await withoutTriggers(test.database, async (sql) => {
    await sql`
      update payouts set source_minor = fee_minor + net_minor * 10::numeric ^ 12, net_minor = net_minor * 10::numeric ^ 12,
             receive_minor = receive_minor * 10::numeric ^ 12 where id = ${exactlyOne(rows[0]).id}`;
  });
  const [enormous] = await exposure();
  expect(enormous?.[3]).toMatch(/^[\d,]{20,}\.\d\d EUR$/);
  expect(enormous?.[4]?.slice(0, 11)).toBe(line?.[4]?.slice(0, 11));
});

it('the exposure names currencies that have no rate', async () => {
  const own = await createTestDatabase({ hasRates: false });
  const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
  await showExposure(called(own, ''));
  expect(log.mock.calls).toEqual([['No payout is open.']]);
  log.mockClear();
  await test.database`delete from current_rates where currency = 'USD'`;
  await showExposure(called(test, ''));
  expect(String(log.mock.calls[1])).toMatch(/ {2}no rate$/);
  log.mockRestore();
  await own.drop();
});
