import { pino } from 'pino';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createDecisionWaits } from '../../src/api/decisionWaits.js';
import { connectDatabase, type Database, transaction } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { decisionChannel, notifyDecision } from '../../src/db/payouts.js';
import { eventually } from '../assertions/eventually.js';
import { QuietRail } from '../fakes/quietRail.js';
import { attempt } from '../fixtures/attempt.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, createTestDatabase, type TestDatabase } from '../servers/database.js';

// The limit of each wait is longer than the test's own: a wait that misses its decision fails the test.
const limitMs = 10 * 60_000;
const log = pino({ level: 'silent' });

let store: TestDatabase;
let api: Database;
let waits: ReturnType<typeof createDecisionWaits>;

beforeAll(async () => {
  store = await createTestDatabase();
  api = connectDatabase({ url: store.urls.api, poolSize: 2, applicationName: 'waiting-api' });
  waits = createDecisionWaits(api, log);
});
afterAll(async () => {
  await api.end({ timeout: 5 });
  await store.drop();
});

const decide = (id: string) => transaction(store.worker, (sql) => notifyDecision(sql, id));

const begin = (id: string) => waits.until(id, limitMs);

it('a request waits until the decision of its payout is committed', async () => {
  const id = newId('payout');
  const order: string[] = [];
  const ended = begin(id).then(() => order.push('answered'));
  await transaction(store.worker, async (sql) => {
    await notifyDecision(sql, id);
    // Another payout's decision is announced meanwhile, and ends only its own wait.
    const other = newId('payout');
    const otherEnd = begin(other);
    await decide(other);
    await otherEnd;
    order.push('committed');
  });
  await ended;
  expect(order).toEqual(['committed', 'answered']);
});

it('a notification that names no payout ends no wait', async () => {
  const [id, other] = [newId('payout'), newId('payout')];
  const order: string[] = [];
  const ended = begin(id).then(() => order.push('answered'));
  await decide('error');
  const otherEnd = begin(other);
  await decide(other);
  await otherEnd;
  order.push('other answered');
  await decide(id);
  await ended;
  expect(order).toEqual(['other answered', 'answered']);
});

it('two requests with the same key both learn of the decision', async () => {
  const id = newId('payout');
  const all = [begin(id), begin(id)];
  await decide(id);
  await Promise.all(all);
});

it('a worker announces each decision of a single payout, and none of a batch', async () => {
  const { account } = await createTestAccount(store.database, { funds: { USD: 250_000n } });
  const announced: string[] = [];
  await api.listen(decisionChannel, (id) => announced.push(id));
  const request = async () => (await requestPayout(store.database, account.id)).id;
  const [item, accepted, refused] = [await request(), await request(), await request()];
  await store.database`update payouts set driver = 'bat_1/0' where id = ${item}`;
  const { decidePayouts } = payoutActivities(store.worker, new QuietRail());
  const end = begin(refused);
  const decideFor = (driver: string, id: string) =>
    attempt(() => decidePayouts({ driver, ids: [id], workflowAgeMs: 0 }));
  await decideFor('bat_1/0', item);
  await decideFor(accepted, accepted);
  const [decided] = await decideFor(refused, refused);
  expect(decided?.status).toBe('failed');
  await end;
  await expect.poll(() => announced.toSorted()).toEqual([accepted, refused].toSorted());
});

it('a repeated request whose payout is left to its batch does not wait in vain', async () => {
  const { account } = await createTestAccount(store.database);
  const { id } = await requestPayout(store.database, account.id);
  await store.database`update payouts set driver = 'bat_1/0' where id = ${id}`;
  const { decidePayouts } = payoutActivities(store.worker, new QuietRail());
  const end = begin(id);
  const own = { driver: id, ids: [id], workflowAgeMs: 0 };
  expect(await attempt(() => decidePayouts(own))).toEqual([]);
  await end;
});

it('a decision that nothing announces is noticed all the same', async () => {
  const { account } = await createTestAccount(store.database);
  const { id } = await requestPayout(store.database, account.id);
  const end = begin(id);
  await store.database`update payouts set status = 'failed', refusal = '{}' where id = ${id}`;
  await end;
});

it('a request whose decision never comes ends its wait at the limit', async () => {
  await waits.until(newId('payout'), 1);
});

it('decisions are announced again after the connection was lost', async () => {
  const listening = () => store.database<{ pid: number }[]>`
    select pid from pg_stat_activity
     where application_name = 'waiting-api' and query = 'listen "payout_decided"'
       and datname = current_database()`;
  const [first] = await listening();
  expect(first).toBeDefined();
  await store.database`select pg_terminate_backend(${first?.pid ?? 0})`;
  await eventually('another connection listens', 20_000, async () => {
    const [now] = await listening();
    return now !== undefined && now.pid !== first?.pid ? true : undefined;
  });
  const id = newId('payout');
  const end = begin(id);
  await decide(id);
  await end;
});
