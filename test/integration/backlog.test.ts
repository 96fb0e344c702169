import { setTimeout as delay } from 'node:timers/promises';
import { pino } from 'pino';
import type { Fragment } from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { countMoves } from '../../src/activities/countMoves.js';
import { createBacklog } from '../../src/api/backlog.js';
import { readBacklog } from '../../src/db/backlog.js';
import { connectDatabase, transaction } from '../../src/db/client.js';
import { failuresToPause } from '../../src/db/endpointHealth.js';
import { recordWebhookEvents } from '../../src/db/events.js';
import { newId } from '../../src/db/id.js';
import { failingEndpoints, stuckPayouts } from '../../src/db/operatorLists.js';
import { parkPayouts } from '../../src/db/payouts.js';
import { areStatementsRecent, storeStatement } from '../../src/db/statements.js';
import { insertWebhookEndpoint } from '../../src/db/webhookEndpoints.js';
import { type BacklogSample, createRegistry } from '../../src/metrics.js';
import { createWebhookSecret } from '../../src/webhooks/signature.js';
import { openLine } from '../fakes/line.js';
import { QuietRail } from '../fakes/quietRail.js';
import { absentTemporal } from '../fixtures/interleaving.js';
import { keyring } from '../fixtures/keyring.js';
import { payoutActivities } from '../fixtures/payoutActivities.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import { makeDue, recordEvents } from '../fixtures/webhookEvents.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  withoutTriggers,
} from '../servers/database.js';

const registry = await createRegistry('test');
let test: TestDatabase;

beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

type Labels = BacklogSample['labels'];

/** A metric as the API would export it: its values by their labels. */
async function shown(
  metric: BacklogSample['metric'],
): Promise<readonly (readonly [Labels, number])[]> {
  const samples = await readBacklog(test.api);
  return samples.flatMap((one) =>
    one.metric === metric ? [[one.labels, one.value] as const] : [],
  );
}

/** A payout that was requested and decided. */
async function accepted(accountId: string): Promise<string> {
  const { id } = await requestPayout(test.database, accountId);
  const { decidePayouts } = payoutActivities(test.worker, new QuietRail());
  await decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 });
  return id;
}

async function addEndpoint(accountId: string, events = ['*']): Promise<string> {
  const id = newId('webhookEndpoint');
  const made = {
    id,
    accountId,
    url: 'https://x.example/',
    events,
    apiVersion: '2026-06-01',
  };
  await insertWebhookEndpoint(test.database, keyring, { ...made, secret: createWebhookSecret() });
  return id;
}

describe('what waits', () => {
  it('is counted by status, corridor and state, with the age of the oldest', async () => {
    const { account } = await createTestAccount(test.database);
    expect(await shown('payouts_unfinished')).toEqual([]);
    await requestPayout(test.database, account.id);
    const [open, parked, paused, failed] = [
      ...[await accepted(account.id), await accepted(account.id)],
      ...[await accepted(account.id), await accepted(account.id)],
    ];
    const because = { reason: 'outcome_unknown', detail: '' } as const;
    await parkPayouts(test.database, [{ id: parked ?? '', ...because }]);
    await test.worker`update payouts set status = 'failed' where id = ${failed ?? ''}`;
    await transaction(test.database, async (sql) => {
      await sql`select set_config('session_replication_role', 'replica', true)`;
      await sql`insert into batches (id, account_id, total, open, rates, paused_at, created_at)
        values ('bat_1', ${account.id}, 1, 1, '[]', now() - interval '90 minutes',
          now() - interval '2 hours')`;
      await sql`update payouts set batch_id = 'bat_1', batch_index = 0 where id = ${paused ?? ''}`;
      await sql`update payouts set requested_at = now() - interval '1 hour' where id = ${open ?? ''}`;
      await sql`update payouts set attention_at = now() - interval '3 hours' where id = ${parked ?? ''}`;
    });
    const of = (status: string, state: string, corridor = 'USD-EUR') =>
      ({ status, state, corridor, mode: 'test' }) as const;
    const counts = await shown('payouts_unfinished');
    expect(counts).toHaveLength(4);
    expect(counts).toEqual(
      expect.arrayContaining([
        [of('pending', 'open'), 1],
        [of('processing', 'open'), 1],
        [of('processing', 'parked'), 1],
        [of('processing', 'paused'), 1],
      ]),
    );
    const ages = new Map(
      (await shown('payouts_unfinished_oldest_seconds')).map(([{ status, state }, age]) => [
        `${status} ${state}`,
        Math.floor(age / 60),
      ]),
    );
    expect(ages.get('processing open')).toBe(60);
    expect(ages.get('pending open')).toBe(0);
    expect(await shown('payouts_parked')).toEqual([
      [{ reason: 'outcome_unknown', mode: 'test' }, 1],
    ]);
    const [[, waited] = []] = await shown('payouts_parked_oldest_seconds');
    expect(Math.floor((waited ?? 0) / 60)).toBe(180);
    expect(await shown('batches_open')).toEqual([[{ state: 'paused' }, 1]]);
    const [[, open_] = []] = await shown('batches_open_oldest_seconds');
    expect(Math.floor((open_ ?? 0) / 60)).toBe(90);

    // As many as are counted, all of them older: they hide none that is stuck.
    await withoutTriggers(test.database, async (sql) => {
      await sql`update payouts set requested_at = now() - interval '2 hours' where id = ${paused ?? ''}`;
      await sql`
        insert into payouts
        select copy.* from payouts p cross join generate_series(1, 10000) n
         cross join jsonb_populate_record(p, jsonb_build_object('id', 'po_' || n, 'batch_index', n)) copy
         where p.id = ${paused ?? ''}`;
    });
    const beside = await shown('payouts_unfinished');
    expect(beside).toContainEqual([of('processing', 'open'), 1]);
    expect(beside).toContainEqual([of('processing', 'paused'), 10_001]);

    // The bank has accepted one whose submission a restore has lost.
    await withoutTriggers(test.database, async (sql) => {
      await sql`update payouts set status = 'sent' where id = ${paused ?? ''}`;
    });
    expect(await shown('payouts_unfinished')).toContainEqual([of('sent', 'open'), 1]);
  });

  it('includes a live payout that needs an operator, however many test payouts do', async () => {
    const { account } = await createTestAccount(test.database);
    const id = await accepted(account.id);
    await parkPayouts(test.database, [{ id, reason: 'outcome_unknown', detail: '' }]);
    await withoutTriggers(test.database, async (sql) => {
      await sql`
        insert into payouts
        select copy.* from payouts p cross join generate_series(1, 10000) n
         cross join jsonb_populate_record(p, jsonb_build_object('id', 'po_parked' || n,
           'driver', 'po_parked' || n, 'attention_at', now() - interval '1 hour')) copy
         where p.id = ${id}`;
      await sql`update payouts set mode = 'live', rail = 'a-bank' where id = ${id}`;
    });
    expect(await shown('payouts_parked')).toContainEqual([
      { reason: 'outcome_unknown', mode: 'live' },
      1,
    ]);
    expect((await stuckPayouts(test.database, {}))[0]).toMatchObject({ id });
  });

  it('distinguishes deliveries that are due from those of failing endpoints', async () => {
    const { account } = await createTestAccount(test.database);
    await recordEvents(test.database, account.id, 50);
    const [well, failing] = [await addEndpoint(account.id), await addEndpoint(account.id)];
    await recordEvents(test.database, account.id, 3);
    expect(await shown('webhook_backlog')).toEqual([[{ state: 'waiting' }, 6]]);
    await makeDue(test.database, well);
    await makeDue(test.database, failing);
    await test.database`
      update webhook_endpoints set failures = ${failuresToPause}, failing_since = now(), failed_at = now()
       where id = ${failing}`;
    await test.database`
      insert into delivery_groups
        (account_id, endpoint_id, types, first_sequence, last_sequence, next_attempt_at)
      values (${account.id}, ${well}, '{*}', 1, 50, now() - interval '2 seconds')`;
    expect(new Map((await shown('webhook_backlog')).map(([{ state }, n]) => [state, n]))).toEqual(
      new Map([
        ['due', 53],
        ['failing', 3],
      ]),
    );
    expect(new Map((await shown('webhook_endpoints')).map(([{ state }, n]) => [state, n]))).toEqual(
      new Map([
        ['enabled', 1],
        ['failing', 1],
      ]),
    );
    const ages = await shown('webhook_backlog_oldest_seconds');
    for (const [, age] of ages) expect(age).toBeGreaterThanOrEqual(2);

    // Nothing is sent to it any more, so nothing can end its outage.
    await test.database`
      update webhook_endpoints set failed_at = now() - interval '26 hours' where id = ${failing}`;
    expect(await shown('webhook_endpoints')).toEqual([[{ state: 'enabled' }, 2]]);
    expect(await failingEndpoints(test.database, account.id)).toEqual([]);
  });

  it('counts in groups only the events that an endpoint listens to', async () => {
    const { account } = await createTestAccount(test.database);
    const before = new Map((await shown('webhook_backlog')).map(([{ state }, n]) => [state, n]));
    await addEndpoint(account.id, ['payout.failed']);
    const { id: batchId } = await transaction(test.database, async (sql) => ({
      id: await requestBatch(sql, account.id, { count: 120 }),
    }));
    const items = await test.database<{ id: string }[]>`
      select id from payouts where batch_id = ${batchId}`;
    const nothing = { statusReason: null, settledAt: null, returnedMinor: null };
    await recordWebhookEvents(
      test.database,
      items.map(({ id: subjectId }, index) => {
        const status = index % 2 === 0 ? 'failed' : 'settled';
        const facts = { ...nothing, status } as const;
        return { accountId: account.id, type: `payout.${status}`, subjectId, facts } as const;
      }),
    );
    const after = new Map((await shown('webhook_backlog')).map(([{ state }, n]) => [state, n]));
    expect((after.get('waiting') ?? 0) - (before.get('waiting') ?? 0)).toBe(60);
  });

  it('includes the age of each rate, and how many rates wait for an operator', async () => {
    const ages = await shown('rate_age_seconds');
    expect(ages.map(([{ currency }]) => currency)).toContain('USD');
    expect(await shown('rates_waiting')).toEqual([[{}, 0]]);
  });

  it('leaves out a rate that its provider has dropped, but not the rates of one that is down', async () => {
    const count = async () => (await shown('rate_age_seconds')).length;
    const all = await count();
    const age = (sql: Fragment) =>
      test.database`update current_rates set as_of = now() - interval '15 days' where ${sql}`;
    await age(test.database`currency = 'KES'`);
    expect(await count()).toBe(all - 1);
    await age(test.database`true`);
    expect(await count()).toBe(all);
  });
});

it('statements are compared in part while a bank has closed no day lately', async () => {
  const isRecentAfter = async (daysAgo: number) => {
    const date = new Date(Date.now() - daysAgo * 86_400_000).toISOString().slice(0, 10);
    await transaction(test.worker, (sql) =>
      storeStatement(sql, { rail: 'sandbox', date, closed: true, lines: [] }),
    );
    return areStatementsRecent(test.worker);
  };
  expect(await areStatementsRecent(test.worker)).toBe(true);
  expect(await isRecentAfter(7)).toBe(false);
  expect(await isRecentAfter(4)).toBe(true);
});

it('a scrape does not wait for a database host that has vanished', async ({ onTestFinished }) => {
  let isGone = false;
  const line = await openLine(test.urls.api, (client, dial) => {
    dial().on('data', (data) => isGone || client.write(data));
  });
  const database = connectDatabase({ url: line.url, poolSize: 1, applicationName: 'test' });
  onTestFinished(async () => {
    await line.close();
    await database.end({ timeout: 0 });
  });
  await database`select`;
  isGone = true;
  const refresh = createBacklog(database, absentTemporal(), pino({ level: 'silent' }));
  await refresh();
});

it('a reading may take longer than a list', async ({ onTestFinished }) => {
  const limits = { poolSize: 1, statementTimeoutMs: 300 } as const;
  const lists = connectDatabase({ url: test.urls.api, applicationName: 'test', ...limits });
  onTestFinished(() => lists.end());
  const refresh = createBacklog(lists, absentTemporal(), pino({ level: 'silent' }));
  const name = 'corridor_webhook_endpoints';
  registry.getSingleMetric(name)?.reset();
  await transaction(test.database, async (sql) => {
    // Stands for many payouts: the reading takes twice as long as a list may.
    await sql`lock table webhook_endpoints in access exclusive mode`;
    void refresh();
    await delay(2 * limits.statementTimeoutMs);
  });
  await expect.poll(() => registry.getSingleMetricAsString(name)).toContain(`${name}{`);
});

it('the time of the last reading is known from the start, as an outage may have begun before', async () => {
  const startSeconds = Date.now() / 1000;
  createBacklog(test.api, absentTemporal(), pino({ level: 'silent' }));
  const name = 'corridor_backlog_read_timestamp_seconds';
  const lines = (await registry.getSingleMetricAsString(name)).split('\n');
  const samples = lines.filter((line) => line.startsWith(name));
  expect(samples.map((line) => /from="(\w+)"/.exec(line)?.[1])).toEqual(['database', 'temporal']);
  for (const line of samples) {
    expect(Number(line.split(' ').at(-1))).toBeGreaterThanOrEqual(startSeconds);
  }
});

describe('a payout that moves', () => {
  const moved = {
    status: 'settled',
    mode: 'live',
    sourceCurrency: 'USD',
    destinationCurrency: 'PLN',
  } as const;
  const row = {
    ...moved,
    rail: 'a rail of this test',
    requestedAt: new Date('2026-11-24T12:00:00Z'),
    settledSince: new Date('2026-11-24T12:00:04Z'),
  };
  const valuesOf = async (metric: string) =>
    (await registry.getMetricsAsJSON()).find(({ name }) => name === metric)?.values ?? [];
  const counted = async () => {
    const values = await valuesOf('corridor_payout_moves_total');
    return values.find(({ labels }) => labels['corridor'] === 'USD-PLN')?.value ?? 0;
  };

  it('is counted once it is committed, however often its transaction is repeated', async () => {
    const conflict = Object.assign(new Error('It conflicts.'), { code: '40001' });
    let attempts = 0;
    const undone = transaction(test.database, async (sql) => {
      countMoves(sql, [row]);
      throw new Error('It is undone.');
    });
    await expect(undone).rejects.toThrow('It is undone.');
    expect(await counted()).toBe(0);
    await transaction(test.database, async (sql) => {
      attempts += 1;
      countMoves(sql, [row]);
      expect(await counted()).toBe(0);
      if (attempts < 3) throw conflict;
    });
    expect(await counted()).toBe(1);
    const took = (await registry.metrics())
      .split('\n')
      .find((line) => /_settlement_seconds_sum.*rail="a rail of this test"/.test(line));
    expect(took).toMatch(/ 4$/);
  });
});
