import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { maintenanceActivities } from '../../src/activities/maintenance.js';
import { transaction } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { bindKeys, findKeys, purgeExpiredKeys } from '../../src/db/idempotency.js';
import retention from '../../src/db/retention.json' with { type: 'json' };
import { insertWebhookEndpoint } from '../../src/db/webhookEndpoints.js';
import { addProbe } from '../../src/db/webhookProbes.js';
import { createRails } from '../../src/rails/registry.js';
import { referenceSource } from '../../src/rates/reference.js';
import { createWebhookSecret } from '../../src/webhooks/signature.js';
import { absentTemporal } from '../fixtures/interleaving.js';
import { keyring } from '../fixtures/keyring.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  untilLockWaits,
  withoutTriggers,
} from '../servers/database.js';

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test?.drop());

function purge(): Promise<number> {
  const activities = maintenanceActivities({
    database: test.worker,
    temporal: absentTemporal(),
    rails: createRails([]),
    rateSource: referenceSource,
    log: pino({ level: 'silent' }),
  });
  return activities.purge();
}

type Kept = {
  readonly rows: string;
  readonly days?: number;
  readonly years?: number;
  readonly after?: string;
};
const kept = Object.entries<Kept>(retention);

describe('how long rows are kept', () => {
  it('is defined for every table', async () => {
    const tables = await test.database<{ name: string }[]>`
      select table_name as name from information_schema.tables
       where table_schema = 'public' and table_type = 'BASE TABLE'`;
    const named = kept.flatMap(([names]) => names.split(', '));
    expect(named.toSorted()).toEqual(tables.map(({ name }) => name).toSorted());
  });

  it('is enforced by the database for erasures', () => {
    const path = new URL('../../src/db/migrations/0013_personal_data.sql', import.meta.url);
    const { years } = retention.beneficiary_keys;
    expect(readFileSync(path, 'utf8')).toContain(`+ interval '${years} years'`);
  });

  it('is the same in docs/operations.md as in the code', () => {
    const path = fileURLToPath(new URL('../../docs/operations.md', import.meta.url));
    const lines = kept.map(([names, { rows, days, years, after }]) => {
      const tables = names.replaceAll(/\w+/g, '`$&`');
      const time = days === undefined ? `${years} years` : `${days} days`;
      return `| ${tables} | ${rows} | ${after === undefined ? 'forever' : `${time} after ${after}`} |`;
    });
    const table = ['| Table | Rows | Kept |', '| --- | --- | --- |', ...lines, ''].join('\n');
    expect(readFileSync(path, 'utf8')).toContain(`\n\n${table}\n`);
  });
});

describe('a quote', () => {
  /** A quote that expired this long ago. With `isUsed`, a new payout uses it. */
  async function quoteOf(accountId: string, interval: string, isUsed: boolean): Promise<string> {
    const { id, quoteId } = await requestPayout(test.database, accountId);
    await withoutTriggers(
      test.database,
      (sql) => sql`
      update quotes
         set created_at = now()::timestamptz(3) - ${interval}::interval - interval '30 seconds',
             expires_at = now()::timestamptz(3) - ${interval}::interval,
             used_by = ${isUsed ? id : null}
       where id = ${quoteId}`,
    );
    return quoteId ?? newId('quote');
  }

  it('is deleted when it is old and no payout has used it, and only then', async () => {
    const { account } = await createTestAccount(test.database);
    const unused = await quoteOf(account.id, '30 days 1 hour', false);
    const younger = await quoteOf(account.id, '29 days 23 hours', false);
    const used = await quoteOf(account.id, '400 days', true);
    expect(await purge()).toBe(1);
    const left = await test.database<{ id: string }[]>`
      select id from quotes where account_id = ${account.id} order by id`;
    expect(left.map(({ id }) => id)).toEqual([younger, used].toSorted());
    expect(left.map(({ id }) => id)).not.toContain(unused);
    expect(await purge()).toBe(0);
  });

  it('cannot be deleted while it is used or may still be used', async () => {
    const { account } = await createTestAccount(test.database);
    const used = await quoteOf(account.id, '400 days', true);
    const open = await quoteOf(account.id, '29 days', false);
    for (const id of [used, open]) {
      await expect(test.worker`delete from quotes where id = ${id}`).rejects.toThrow(
        'a quote that is used stays, and any for 30 days',
      );
    }
    await expect(test.api`delete from quotes where id = ${used}`).rejects.toMatchObject({
      code: '42501',
    });
  });
});

it('a worker whose clock is a year ahead purges nothing early', async () => {
  const { account } = await createTestAccount(test.database);
  const [eventId, id] = [newId('event'), newId('webhookEndpoint')];
  const endpoint = { id, accountId: account.id, url: 'http://127.0.0.1:9/', events: ['*'] };
  const made = { ...endpoint, secret: createWebhookSecret(), apiVersion: '2026-06-01' };
  await insertWebhookEndpoint(test.database, keyring, made);
  await test.database`
    insert into deliveries (event_id, endpoint_id, status) values (${eventId}, ${id}, 'delivered')`;
  await test.database`
    insert into delivery_attempts (event_id, endpoint_id, at) values (${eventId}, ${id}, now())`;
  const probe = { ...endpoint, id: newId('webhookProbe'), endpointId: id, kind: 'test' } as const;
  await transaction(test.database, (sql) => addProbe(sql, probe));
  onTestFinished(() => {
    vi.useRealTimers();
  });
  vi.setSystemTime(Date.now() + 365 * 24 * 60 * 60_000);
  expect(await purge()).toBe(0);
});

it('the purge of expired keys keeps a key that is bound again meanwhile', async () => {
  const { account } = await createTestAccount(test.database);
  const binding = {
    key: 'k',
    route: 'POST /v1/quotes',
    fingerprints: {},
    objectId: 'qt_1',
    refusal: null,
  };
  await bindKeys(test.api, account.id, [binding], -1);
  const payout = { ...binding, route: 'POST /v1/payouts', objectId: 'po_1' };
  let purging: ReturnType<typeof purgeExpiredKeys> | undefined;
  await test.api.begin(async (sql) => {
    expect(await bindKeys(sql, account.id, [payout], null)).toEqual([]);
    purging = purgeExpiredKeys(test.worker, 10);
    purging.catch(() => undefined);
    await untilLockWaits(test.database, 'the purge waits for the key', 10_000);
  });
  expect(await purging).toMatchObject({ count: 0 });
  // A repeat of the payout's request finds the payout, and makes no second one.
  expect(await findKeys(test.api, account.id, ['k'])).toMatchObject([{ objectId: 'po_1' }]);
});
