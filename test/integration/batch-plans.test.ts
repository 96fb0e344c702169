import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { accept } from '../../src/activities/acceptance.js';
import { applyFacts } from '../../src/activities/applyFacts.js';
import { completeBatches, countItems, listItems, statusesOfItems } from '../../src/db/batches.js';
import { beneficiariesOf } from '../../src/db/beneficiaries.js';
import {
  claimOverdueChunks,
  countChunk,
  handOverItems,
  itemsOf,
  itemsWithUnprocessedEvents,
  leaseChunk,
} from '../../src/db/chunks.js';
import { type Database, type Sql, transaction } from '../../src/db/client.js';
import {
  claimDueDeliveries,
  claimFirstAttempts,
  nextAttemptInMs,
  overdueEndpoints,
  pendingFirstAttempts,
  recordAttempts,
  releaseClaims,
} from '../../src/db/deliveries.js';
import {
  claimGroups,
  endGroups,
  endOverdueGroups,
  endpointsOfGroups,
} from '../../src/db/deliveryGroups.js';
import { listDeliveries } from '../../src/db/deliveryLog.js';
import { bindKeys, findKeys } from '../../src/db/idempotency.js';
import { postEntries } from '../../src/db/ledger.js';
import {
  claimOverduePayouts,
  lockPayouts,
  postponeWaiting,
  refusePayouts,
} from '../../src/db/payouts.js';
import { storeRailEvents } from '../../src/db/railInbox.js';
import { beginSubmission } from '../../src/db/submissions.js';
import { chunkDriver, chunkSize, groupSize, groupsOf } from '../../src/domain/batch.js';
import type { PayoutFact } from '../../src/domain/factEffect.js';
import { fundEntry } from '../../src/domain/ledger.js';
import { railKey } from '../../src/domain/payout.js';
import { refuse } from '../../src/domain/refusal.js';
import { createRails } from '../../src/rails/registry.js';
import { openPlanReader, type PlanReader } from '../assertions/plans.js';
import { QuietRail } from '../fakes/quietRail.js';
import { usualFactRules } from '../fixtures/factRules.js';
import {
  analyze,
  createDatabaseOfAMillion,
  disableAutovacuum,
  fillPayouts,
} from '../fixtures/payoutFill.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { rateMaximumAgeMs } from '../fixtures/requestPayout.js';
import { createTestDatabase, type TestDatabase, withoutTimeouts } from '../servers/database.js';

/** The limits that the quiet rail declares. */
const limits = [{ rail: 'sandbox', settleWithinMs: 5 * 24 * 60 * 60 * 1000 }];

const deps = { rails: createRails([new QuietRail()]), rateMaximumAgeMs, factRules: usualFactRules };
const accountId = 'acc_0';
const batchId = 'bat_lane';
const fingerprints = { amount: 'digest' };

/** Chunks of one batch: undecided, accepted, and submitted to the rail. */
const pending = { batchId, number: 0 };
const accepted = { batchId, number: 1 };
const sent = { batchId, number: 2 };
const chunks = [pending, accepted, sent];
const items = chunks.length * chunkSize;

/** Other rows that fill the tables: deliveries, rail events, keys and waiting payouts of other accounts. */
const beside = `
  insert into webhook_endpoints (id, account_id, url, events, api_version)
    values ('we_dead', 'acc_0', 'https://dead.example', '{none}', '2026-06-01'),
           ('we_live', 'acc_0', 'https://live.example', '{*}', '2026-06-01');
  insert into deliveries (event_id, endpoint_id, attempts, next_attempt_at, last_attempt_at)
    select id, 'we_dead', 3, now() - interval '1 hour', now() from events;
  insert into rail_inbox (rail, rail_event_id, rail_key, payout_id, fact)
    select 'sandbox', 'old:' || id, id, id, '{"kind": "settled"}' from payouts
     where account_id = 'acc_0' limit 50000;
  insert into idempotency_keys (account_id, key, route, fingerprints, object_id)
    select 'acc_0', 'key ' || n, 'POST /v1/payouts', '{}', 'po_' || n
      from generate_series(1, 100000) n;
  update payouts set wake_at = now() + case when id < 'po_8' then interval '-1 hour' else '1 hour' end
   where status = 'sent' or id like 'po_77%';
  insert into batch_chunks (batch_id, number, wake_at)
    select id, 0, case when id like '%70' then now() - interval '1 hour' end
      from batches limit 10000;
  update accounts set event_sequence = 100000000 where id = 'acc_0';
  select setval(pg_get_serial_sequence(t, 'id'), 100000000)
    from unnest(array['ledger_entries', 'ledger_accounts']) t`;

/** A database with a tenth as many payouts, and no planner statistics. */
async function createWithoutStatistics(): Promise<TestDatabase> {
  const test = await createTestDatabase();
  await disableAutovacuum(test);
  await fillPayouts(test, 100_000);
  // Building the indexes has counted the rows.
  await test.database`
    update pg_class set reltuples = -1, relpages = 0
     where relnamespace = 'public'::regnamespace`;
  return test;
}

/** Processes the payouts group by group, each group in a separate transaction. */
async function inGroups(
  database: Database,
  ids: readonly string[],
  work: (sql: Sql, ids: readonly string[]) => Promise<unknown>,
): Promise<void> {
  for (const group of groupsOf(ids)) await transaction(database, (sql) => work(sql, group));
}

const factsOf = (ids: readonly string[], fact: PayoutFact) => new Map(ids.map((id) => [id, fact]));

/** The lane's own batch, advanced to the state of each chunk by the service's own statements. */
async function carryLane(database: Database): Promise<void> {
  await withoutTimeouts(database, (sql) => sql.unsafe(beside));
  const funds = { mode: 'test', accountId, payoutId: null } as const;
  await postEntries(database, [{ entry: fundEntry('USD', 10n ** 12n), ...funds }]);
  await transaction(database, (sql) => requestBatch(sql, accountId, { id: batchId, count: items }));
  for (const chunk of [accepted, sent]) {
    await inGroups(database, await itemsOf(database, chunk, ['pending']), (sql, ids) =>
      accept(sql, deps, { driver: chunkDriver(chunk), ids, workflowAgeMs: 0 }),
    );
  }
  const driver = chunkDriver(sent);
  await inGroups(database, await itemsOf(database, sent, ['processing']), async (sql, ids) => {
    await beginSubmission(sql, { driver, ids, wakeInMs: 0 }, limits);
    await applyFacts(
      sql,
      usualFactRules,
      { driver, ids },
      factsOf(ids, { kind: 'accepted', reference: null }),
    );
  });
  const [reported = []] = groupsOf(await itemsOf(database, sent, ['sent']));
  await storeRailEvents(database, 'sandbox', await settlementsOf(database, reported));
}

/** Reports that the rail has settled each of these payouts. */
async function settlementsOf(sql: Sql, ids: readonly string[]) {
  const rows = await sql<{ id: string; receiveMinor: bigint }[]>`
    select id, receive_minor from payouts where id = any (${ids})`;
  return rows.map(({ id, receiveMinor }) => ({
    id: `lane:${id}`,
    key: railKey(id),
    report: { kind: 'settled', amountMinor: receiveMinor, currency: 'EUR' } as const,
  }));
}

/** The input of the statements: a group of each chunk's payouts, and the pending deliveries. */
async function readGroups(database: Database) {
  const [undecided = []] = groupsOf(await itemsOf(database, pending, ['pending']));
  const [unsent = []] = groupsOf(await itemsOf(database, accepted, ['processing']));
  const [reported = [], unreported = []] = groupsOf(await itemsOf(database, sent, ['sent']));
  const railEvents = await settlementsOf(database, unreported);
  // The preparation has taken longer than a first attempt's lease.
  await database`update delivery_groups set next_attempt_at = now() + interval '1 hour'`;
  // The deliveries of one transaction get separate rows, as if their process had handed them over.
  await database`
    select end_delivery_groups(array(select id from delivery_groups order by id limit 11), 'pending', false)`;
  const pairs = await pendingFirstAttempts(database, reported);
  expect(pairs).toHaveLength(groupSize);
  return { undecided, unsent, reported, unreported, railEvents, pairs };
}
type Groups = Awaited<ReturnType<typeof readGroups>>;

type Statement = (sql: Sql, groups: Groups) => Promise<unknown>;

const bindings = (from: number) =>
  Array.from({ length: groupSize }, (_, index) => ({
    key: `key ${from + index}`,
    route: 'POST /v1/batches',
    fingerprints,
    objectId: 'po_1',
    refusal: null,
  }));

/** The statements of the lane, each with its number of rows. */
const statements: readonly (readonly [string, number, Statement])[] = [
  [
    'records a thousand items',
    chunkSize,
    (sql) => requestBatch(sql, accountId, { count: chunkSize }),
  ],
  ['finds a chunk’s payouts', chunkSize, (sql) => itemsOf(sql, pending, ['pending'])],
  ['lists a batch’s statuses', items, (sql) => statusesOfItems(sql, batchId)],
  ['counts a batch’s payouts', items, (sql) => countItems(sql, batchId)],
  [
    'lists a page of items',
    20,
    (sql) => listItems(sql, batchId, { after: 1_500, limit: 20, status: null }),
  ],
  ['counts a chunk by status', chunkSize, (sql) => countChunk(sql, sent)],
  ['finds a chunk’s unprocessed events', chunkSize, (sql) => itemsWithUnprocessedEvents(sql, sent)],
  ['holds a chunk', 1, (sql) => leaseChunk(sql, sent, 0)],
  [
    'accepts',
    groupSize,
    (sql, { undecided }) =>
      accept(sql, deps, { driver: chunkDriver(pending), ids: undecided, workflowAgeMs: 0 }),
  ],
  [
    'refuses',
    groupSize,
    (sql, { undecided }) =>
      refusePayouts(
        sql,
        undecided.map((id) => ({ id, refusal })),
      ),
  ],
  [
    'begins a submission',
    groupSize,
    (sql, { unsent }) =>
      beginSubmission(sql, { driver: chunkDriver(accepted), ids: unsent, wakeInMs: 0 }, limits),
  ],
  ['reads beneficiaries', groupSize, (sql, { unsent }) => beneficiariesOf(sql, unsent)],
  ['locks', groupSize, (sql, { reported }) => lockPayouts(sql, null, reported)],
  [
    'stores rail events',
    groupSize,
    (sql, { railEvents }) => storeRailEvents(sql, 'sandbox', railEvents),
  ],
  [
    'applies the answers of the rail',
    groupSize,
    (sql, { unsent }) =>
      applyFacts(
        sql,
        usualFactRules,
        { driver: chunkDriver(accepted), ids: unsent },
        factsOf(unsent, { kind: 'accepted', reference: null }),
      ),
  ],
  [
    'applies rail events',
    groupSize,
    (sql, { reported }) =>
      applyFacts(sql, usualFactRules, { driver: chunkDriver(sent), ids: reported }, new Map()),
  ],
  [
    'cancels',
    groupSize,
    (sql, { unsent }) =>
      applyFacts(sql, usualFactRules, { driver: null, ids: unsent }, factsOf(unsent, canceled)),
  ],
  ['closes items', groupSize, (sql) => completeBatches(sql, Array(groupSize).fill(batchId))],
  ['hands over stuck items', chunkSize, (sql) => handOverItems(sql, sent, 'stuck')],
  ['hands over unanswered items', chunkSize, (sql) => handOverItems(sql, sent, 'unanswered')],
  ['hands over everything', chunkSize, (sql) => handOverItems(sql, sent, 'all')],
  ['finds first attempts', groupSize, (sql, { reported }) => pendingFirstAttempts(sql, reported)],
  ['takes first attempts', groupSize, (sql, { pairs }) => claimFirstAttempts(sql, pairs)],
  ['releases claims', groupSize, (sql, { pairs }) => releaseClaims(sql, pairs, 0)],
  [
    'records attempts',
    groupSize,
    (sql, { pairs }) =>
      recordAttempts(
        sql,
        pairs.map((pair) => ({ ...pair, ...delivered })),
      ),
  ],
  ['finds who has groups', groupSize, (sql) => endpointsOfGroups(sql, accountId)],
  ['takes groups', groupSize, (sql) => claimGroups(sql, 'we_live', groupSize)],
  [
    'records attempts of groups, and ends these',
    2 * groupSize,
    async (sql) => {
      const due = await claimGroups(sql, 'we_live', groupSize);
      await recordAttempts(
        sql,
        due.map((one) => ({ ...one, ...delivered, groupId: one.groupId })),
      );
      await endGroups(sql, due);
    },
  ],
  ['ends overdue groups', groupSize, (sql) => endOverdueGroups(sql)],
  [
    'lists what is pending',
    groupSize,
    (sql) => listDeliveries(sql, 'we_live', { limit: 20, from: null }, { status: 'pending' }),
  ],
  ['claims the deliveries of a dead endpoint', 32, (sql) => claimDueDeliveries(sql, 'we_dead', 32)],
  ['finds when a dead endpoint is due', 32, (sql) => nextAttemptInMs(sql, 'we_dead')],
  ['finds overdue endpoints', 32, (sql) => overdueEndpoints(sql)],
  ['finds overdue payouts', groupSize, (sql) => claimOverduePayouts(sql)],
  ['puts off payouts', groupSize, (sql, { reported }) => postponeWaiting(sql, reported)],
  ['finds overdue chunks', 250, (sql) => claimOverdueChunks(sql)],
  ['binds new keys', groupSize, (sql) => bindKeys(sql, accountId, bindings(200_000), null)],
  [
    'binds keys that are bound',
    groupSize,
    (sql) => bindKeys(sql, accountId, bindings(50_000), null),
  ],
  [
    'finds keys',
    groupSize,
    (sql) =>
      findKeys(
        sql,
        accountId,
        bindings(50_000).map(({ key }) => key),
      ),
  ],
];

const canceled = { kind: 'withdrawn' } as const;
const refusal = refuse('batch_refused', { detail: 'Another item was refused.' });
const delivered = {
  status: 'delivered',
  at: new Date(),
  latencyMs: 12,
  httpStatus: 200,
  error: null,
  answer: null,
  retryInMs: 0,
  attempts: 1,
  groupId: null,
  url: 'http://127.0.0.1:1/',
} as const;

/** Rolls back a transaction after its plan was recorded. */
class Undone extends Error {}

/** Returns the plans of one step's statements, including those in triggers and functions. */
async function plansOf(reader: PlanReader, statement: Statement, groups: Groups) {
  return reader.plansOf(async () => {
    const undone = reader.database.begin(async (sql) => {
      await sql`set constraints all deferred`;
      await statement(sql, groups);
      // Foreign keys are checked in the same way as at the end of bulkTransaction.
      await sql`set local plan_cache_mode = auto`;
      await sql`set constraints all immediate`;
      throw new Undone();
    });
    await expect(undone).rejects.toThrow(Undone);
  });
}

describe.each([
  {
    payouts: 1_000_000,
    create: createDatabaseOfAMillion,
    isAnalyzed: true,
    state: 'analyzed',
    mostRead: (rows: number) => 20 * rows + 100,
  },
  {
    payouts: 100_000,
    create: createWithoutStatistics,
    isAnalyzed: false,
    state: 'just filled and not analyzed',
    // A table may be read once where the planner assumes that it is small, but never once per row.
    mostRead: (rows: number) => 20 * rows + 100_000,
  },
])('among $payouts payouts, $state, the batch lane', ({ create, isAnalyzed, mostRead }) => {
  let test: TestDatabase;
  let reader: PlanReader;
  let groups: Groups;

  beforeAll(async () => {
    test = await create();
    await carryLane(test.database);
    if (isAnalyzed) await analyze(test);
    groups = await readGroups(test.database);
    reader = await openPlanReader(test.url);
    await reader.database.unsafe('set auto_explain.log_nested_statements = on');
  }, 600_000);
  afterAll(async () => {
    await reader.close();
    await test.drop();
  });

  it.each(statements)('%s by reading a few times its %i rows', async (_, rows, statement) => {
    const plans = await plansOf(reader, statement, groups);
    for (const plan of plans) {
      expect(plan.rowsRead, plan.text).toBeLessThanOrEqual(mostRead(rows));
    }
  });
});
