import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ledgerActivities } from '../../src/activities/ledger.js';
import { changeState } from '../../src/cli/account.js';
import { setAccountState } from '../../src/db/accounts.js';
import { connectDatabase, type Sql, transaction } from '../../src/db/client.js';
import { postEntries } from '../../src/db/ledger.js';
import { fundEntry } from '../../src/domain/ledger.js';
import { usualFactRules } from '../../src/domain/payout.js';
import { createRails } from '../../src/rails/registry.js';
import { eventually } from '../assertions/eventually.js';
import { QuietRail } from '../fakes/quietRail.js';
import { silentDeliverer } from '../fakes/silentDeliverer.js';
import { openBatchPayer, rowsOf, untilBatch } from '../fixtures/batchPayer.js';
import { createClient, textOf, untilStatus } from '../fixtures/client.js';
import { called, signature } from '../fixtures/operators.js';
import { openPayer, rowOf } from '../fixtures/payer.js';
import { rateMaximumAgeMs, requestPayout } from '../fixtures/requestPayout.js';
import { createTestAccount, unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(async () => {
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
  await system.stop();
});

const change = (id: string, state: Parameters<typeof changeState>[1]) =>
  changeState(called(system, id), state);

const code = (body: unknown) => expect.objectContaining({ code: body });

/** A worker's decision on a payout that nobody has woken. */
function decide(id: string) {
  const { decidePayouts } = ledgerActivities({
    database: system.worker,
    rails: createRails([new QuietRail()]),
    rateMaximumAgeMs,
    factRules: usualFactRules,
    deliverer: silentDeliverer,
  });
  return decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 });
}

/** How many statements of this database wait for a lock. */
async function waiting(): Promise<number> {
  const [row] = await system.database<{ count: number }[]>`
    select count(*)::int as count from pg_stat_activity
     where datname = current_database() and wait_event_type = 'Lock'`;
  return row?.count ?? 0;
}
const untilOneWaits = () =>
  eventually('a statement waits for a lock', 20_000, async () =>
    (await waiting()) > 0 ? true : undefined,
  );

/** Begins `other` while the transaction of `work` is open, and commits once `other` waits for it. */
async function inTurn<T>(work: (sql: Sql) => Promise<unknown>, other: () => Promise<T>) {
  let begun: Promise<T> | undefined;
  await transaction(system.database, async (sql) => {
    await work(sql);
    begun = other();
    await untilOneWaits();
  });
  return begun;
}

describe('a frozen account', () => {
  it('sends nothing and stores nothing, and does everything else', async () => {
    const payer = await openPayer(system);
    const first = await payer.ask('before', { idempotencyKey: 'before' });
    const kept = textOf(first, 'id');
    await change(payer.accountId, 'frozen');
    const quote = { source_currency: 'USD', destination_currency: 'EUR', amount: '10000' };
    const answers = [
      await payer.ask('while it is frozen', { idempotencyKey: 'once' }),
      await payer.client('POST /v1/quotes', { form: quote }),
      await payer.client('POST /v1/batches', { json: { payouts: [] } }),
    ];
    for (const { status, body } of answers) {
      expect({ status, body }).toEqual({ status: 403, body: code('account_frozen') });
      expect(body).not.toHaveProperty('payout');
    }
    // A repeat is answered as the first request was, and other parameters are still told apart.
    const repeat = await payer.ask('before', { idempotencyKey: '"before"' });
    expect(repeat).toMatchObject({ status: 201, body: { id: kept } });
    const other = await payer.ask('another', { idempotencyKey: 'before' });
    expect(other.body).toEqual(code('idempotency_key_reused'));
    const settled = await untilStatus(payer.client, kept, 'settled');
    expect(settled.body).toMatchObject({ source_amount: '100.00' });
    const list = await payer.client('GET /v1/payouts');
    expect(list.body).toMatchObject({ data: [{ id: kept }] });
    const again = await payer.client(`POST /v1/payouts/${kept}/cancel`);
    expect(again.body).toEqual(code('payout_not_cancelable'));
    const form = { url: 'http://127.0.0.1:1/', 'events[]': '*' };
    expect(await payer.client('POST /v1/webhook_endpoints', { form })).toMatchObject({
      status: 201,
    });

    await change(payer.accountId, 'open');
    const sent = await payer.ask('while it is frozen', { idempotencyKey: 'once' });
    expect(sent.status).toBe(201);
    const lines = await system.database`
      select operator, reason, subject_type, command ->> 'kind' as kind from operator_actions
       where subject_id = ${payer.accountId} order by id`;
    expect(lines.map(({ kind }) => kind)).toEqual(['account frozen', 'account open']);
    expect(lines[0]).toMatchObject({ ...signature, subjectType: 'account' });
  });

  it('accepts nothing after the freeze, whatever was decided beside it', async () => {
    const { account } = await createTestAccount(system.database);
    const { id } = await requestPayout(system.database, account.id);
    // The decision has read everything else, and waits for the balance while the freeze commits.
    await inTurn(
      (sql) => setAccountState(sql, account.id, 'frozen'),
      () => decide(id),
    );
    expect(await rowOf(system, id)).toMatchObject({
      status: 'failed',
      refusal: { code: 'account_frozen' },
    });
  });

  it('waits for a decision that was made before', async () => {
    const { account } = await createTestAccount(system.database);
    const { id } = await requestPayout(system.database, account.id);
    // What a decision holds until it commits.
    const decided = (sql: Sql) => sql`select * from lock_funds(${[id]})`;
    const frozen = inTurn(decided, () =>
      transaction(system.database, (sql) => setAccountState(sql, account.id, 'frozen')),
    );
    await frozen;
    await decide(id);
    expect(await rowOf(system, id)).toMatchObject({ refusal: { code: 'account_frozen' } });
  });

  it('has a first balance in a currency, but no payout of it, that comes with the freeze', async () => {
    const { account } = await createTestAccount(system.database, { funds: {} });
    const { id } = await requestPayout(system.database, account.id);
    const entry = fundEntry('USD', 1_000_000n);
    const fund = { entry, mode: 'test', accountId: account.id, payoutId: null } as const;
    await inTurn(
      (sql) => setAccountState(sql, account.id, 'frozen'),
      () => transaction(system.database, (sql) => postEntries(sql, [fund])),
    );
    await decide(id);
    expect(await rowOf(system, id)).toMatchObject({ refusal: { code: 'account_frozen' } });
  });

  it('in the middle of a batch leaves what was accepted, and not one more', async () => {
    const payer = await openBatchPayer(system, 100_000_000n);
    const acceptedNow = async () => {
      const [row] = await system.database<{ count: number }[]>`
        select count(*)::int as count from payouts
         where account_id = ${payer.accountId} and processing_since is not null`;
      return row?.count ?? 0;
    };
    const items = Array.from({ length: 4_000 }, (_, index) => payer.item(`item ${index}`));
    const id = await payer.send(items);
    await eventually('an item is accepted', 20_000, async () =>
      (await acceptedNow()) > 0 ? true : undefined,
    );
    await change(payer.accountId, 'frozen');
    const accepted = await acceptedNow();
    expect(accepted).toBeGreaterThan(0);
    expect(accepted).toBeLessThan(items.length);
    const batch = await untilBatch(payer.client, id);
    expect(batch.counts).toMatchObject({ settled: accepted, failed: items.length - accepted });
    const reasons = (await rowsOf(system, id)).flatMap(({ statusReason }) => statusReason ?? []);
    expect(new Set(reasons)).toEqual(new Set(['account_frozen']));
  });
});

describe('an account is closed', () => {
  it('once nothing is under way and nothing is left, and then for good', async () => {
    const { account } = await createTestAccount(system.database, { funds: { USD: 125_000n } });
    const { id } = await requestPayout(system.database, account.id);
    await expect(change(account.id, 'closed')).rejects.toThrow(`not final, such as ${id}.`);
    await change(account.id, 'frozen');
    await decide(id);
    await expect(change(account.id, 'closed')).rejects.toThrow('has a balance in USD');
    await expect(change(account.id, 'frozen')).rejects.toThrow('is frozen already');

    const empty = await createTestAccount(system.database, { funds: {} });
    await change(empty.account.id, 'closed');
    await expect(change(empty.account.id, 'open')).rejects.toThrow('stays closed');
    await expect(change(empty.account.id, 'frozen')).rejects.toThrow('stays closed');
  });

  it('and a payout that is requested meanwhile is not left behind', async () => {
    const { account } = await createTestAccount(system.database, { funds: {} });
    const requested = await inTurn(
      (sql) => setAccountState(sql, account.id, 'closed'),
      () => requestPayout(system.database, account.id),
    );
    const id = requested?.id ?? '';
    await decide(id);
    expect(await rowOf(system, id)).toMatchObject({
      status: 'failed',
      refusal: { code: 'account_closed' },
    });
  });

  it('and its keys read, and do nothing else', async () => {
    const { account, apiKey } = await createTestAccount(system.database, { funds: {} });
    await change(account.id, 'closed');
    const client = createClient(system.apiUrl, apiKey);
    expect(await client('GET /v1/payouts')).toMatchObject({ status: 200 });
    for (const route of ['POST /v1/payouts', 'POST /v1/test/fund', 'DELETE /v1/beneficiaries/x']) {
      const { status, body } = await client(route);
      expect({ status, body }).toEqual({ status: 403, body: code('account_closed') });
    }
  });

  it('and a payment that comes back later is credited all the same', async () => {
    const payer = await openPayer(system);
    const answer = await payer.ask('simulate: return AM04 after 2s', { amount: '100000' });
    const id = textOf(answer, 'id');
    await untilStatus(payer.client, id, 'settled');
    await change(payer.accountId, 'closed');
    await untilStatus(payer.client, id, 'returned');
    expect((await payer.balance()).available).toBeGreaterThan(90_000n);
  });
});

describe('the state of an account is changed', () => {
  it.each(['api', 'worker'] as const)('by operators alone, and not by the %s', async (role) => {
    const database = connectDatabase({
      url: system.urls[role],
      poolSize: 1,
      applicationName: 'test',
    });
    const { account } = await createTestAccount(system.database, { funds: {} });
    await expect(setAccountState(database, account.id, 'frozen')).rejects.toMatchObject({
      code: '42501',
    });
    await database.end({ timeout: 5 });
  });

  it('by an operator who has no other rights', async () => {
    const url = system.urls.operator;
    const database = connectDatabase({ url, poolSize: 1, applicationName: 'test' });
    const { account } = await createTestAccount(system.database, { funds: { USD: 1n } });
    await changeState(called({ database }, account.id), 'frozen');
    await database.end({ timeout: 5 });
    const [row] = await system.database`select state from accounts where id = ${account.id}`;
    expect(row).toEqual({ state: 'frozen' });
  });
});
