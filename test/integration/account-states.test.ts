import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { ledgerActivities } from '../../src/activities/ledger.js';
import { changeState, fundAccount, openAccount } from '../../src/cli/account.js';
import { changeLimits } from '../../src/cli/limits.js';
import { findAccount, setAccountState } from '../../src/db/accounts.js';
import { connectDatabase, transaction } from '../../src/db/client.js';
import { groupSize } from '../../src/domain/batch.js';
import { createRails } from '../../src/rails/registry.js';
import { eventually } from '../assertions/eventually.js';
import { callBack, newsOf } from '../fakes/bankCallback.js';
import { QuietRail } from '../fakes/quietRail.js';
import { silentDeliverer } from '../fakes/silentDeliverer.js';
import { openBatchPayer, rowsOf, untilBatch } from '../fixtures/batchPayer.js';
import { createClient, textOf, untilStatus } from '../fixtures/client.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { invisibleLines } from '../fixtures/lines.js';
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

const close = async (id: string) => {
  await change(id, 'frozen');
  await change(id, 'closed');
};

const code = (body: unknown) => expect.objectContaining({ code: body });

/** Runs a worker's decision on a payout whose workflow has not been woken. */
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

/** The number of statements in this database that wait for a lock. */
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

/** The number of deadlocks that the database has resolved. */
async function deadlocks(): Promise<number> {
  await system.database`select pg_stat_force_next_flush()`;
  const [row] = await system.database<{ deadlocks: number }[]>`
    select deadlocks::int from pg_stat_database where datname = current_database()`;
  return row?.deadlocks ?? 0;
}

/** Starts `first` while the balances are locked; releases them once it waits and `then` is done. */
async function whileHeld(
  accountId: string,
  first: () => Promise<unknown>,
  then = async (): Promise<unknown> => undefined,
) {
  const begun: Promise<unknown>[] = [];
  await transaction(system.database, async (sql) => {
    await sql`
      select from ledger_balances where account_id = ${accountId} for no key update`;
    begun.push(first());
    await untilOneWaits();
    await then();
  });
  await Promise.all(begun);
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
    // A repeat gets the first answer, while different parameters are still detected.
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

  it('replays a batch for its own key, but not for the keys of its items', async () => {
    const payer = await openBatchPayer(system, 100_000n);
    const json = { payouts: [{ ...payer.item('keyed'), idempotency_key: 'item-1' }] };
    const keyless = await payer.client('POST /v1/batches', { json });
    const keyed = { json: { payouts: [payer.item('in a batch')] }, idempotencyKey: 'batch' };
    const id = textOf(await payer.client('POST /v1/batches', keyed), 'id');
    await change(payer.accountId, 'frozen');
    expect(await payer.client('POST /v1/batches', keyed)).toMatchObject({ body: { id } });
    const again = await payer.client('POST /v1/batches', { json });
    expect([keyless.status, again.status]).toEqual([202, 403]);
    expect(again.body).toEqual(code('account_frozen'));
    expect(again.body).not.toHaveProperty('batch');
  });

  it('accepts nothing after the freeze, even with decisions running concurrently', async () => {
    const { account } = await createTestAccount(system.database);
    const { id } = await requestPayout(system.database, account.id);
    // The decision has read everything else and waits for the balance while the freeze commits.
    await whileHeld(
      account.id,
      () => decide(id),
      () => setAccountState(system.database, account.id, 'frozen'),
    );
    expect(await rowOf(system, id)).toMatchObject({
      status: 'failed',
      refusal: { code: 'account_frozen' },
    });
  });

  it('is frozen at once, and the command waits for decisions already under way', async () => {
    const { account } = await createTestAccount(system.database);
    const { id } = await requestPayout(system.database, account.id);
    let hasReturned = false;
    const freeze = async () => {
      await change(account.id, 'frozen');
      hasReturned = true;
    };
    await whileHeld(account.id, freeze, async () => {
      expect(await findAccount(system.database, account.id)).toMatchObject({ state: 'frozen' });
      expect(hasReturned).toBe(false);
    });
    expect(hasReturned).toBe(true);
    await decide(id);
    expect(await rowOf(system, id)).toMatchObject({ refusal: { code: 'account_frozen' } });
  });

  it('is frozen even if a decision outlasts the command, which says so', async () => {
    const { account } = await createTestAccount(system.database);
    const options = { url: system.databaseUrl, poolSize: 1, applicationName: 'test' };
    const database = connectDatabase({ ...options, lockTimeoutMs: 100 });
    const log = vi.spyOn(console, 'log').mockReturnValue(undefined);
    // Not among the output, which may be JSON.
    const warn = vi.spyOn(console, 'error').mockReturnValue(undefined);
    await transaction(system.database, async (sql) => {
      await sql`select from ledger_balances where account_id = ${account.id} for no key update`;
      await changeState(called({ database }, account.id), 'frozen');
    });
    expect(log.mock.calls.flat()).toEqual([`${account.id} is frozen.`]);
    expect(warn.mock.calls.flat()).toEqual([
      'The change is in effect, but decisions already in progress may still accept payouts.',
    ]);
    log.mockRestore();
    warn.mockRestore();
    await database.end({ timeout: 5 });
    expect(await findAccount(system.database, account.id)).toMatchObject({ state: 'frozen' });
  });

  it.each([
    ['is frozen', (id: string) => change(id, 'frozen')],
    [
      'gets limits',
      (id: string) => changeLimits(called(system, id, { currency: 'USD', day: '1' })),
    ],
  ] as const)('%s without a deadlock beside a request and a decision', async (_, work) => {
    const { account } = await createTestAccount(system.database);
    const { id } = await requestPayout(system.database, account.id);
    const before = await deadlocks();
    const begun: Promise<unknown>[] = [];
    await transaction(system.database, async (decision) => {
      await decision`select from payouts where id = ${id} for update`;
      const request = transaction(system.database, async (sql) => {
        // The locks that an idempotency key or a new payout takes on its account, before it waits for the
        // payout.
        await sql`select from accounts where id = ${account.id} for key share`;
        await sql`select from payouts where id = ${id} for no key update`;
      });
      begun.push(request);
      await untilOneWaits();
      begun.push(work(account.id));
      // Long enough for the work to wait for the request, or to finish.
      await delay(300);
      await decision`select from lock_funds(${[id]})`;
    });
    await Promise.all(begun);
    expect(await deadlocks()).toBe(before);
  });

  it('in the middle of a batch keeps what was accepted, and accepts no more', async () => {
    const payer = await openBatchPayer(system, 100_000_000n);
    const items = Array.from({ length: 4_000 }, (_, index) => payer.item(`item ${index}`));
    // The first decision to write waits while it holds the balance, and the others wait for the balance.
    await system.database.unsafe(`
      create function wait_here() returns trigger language plpgsql as $$
      begin perform pg_advisory_xact_lock(7); return new; end $$;
      create trigger waits_here before update on payouts for each row
        when (old.status = 'pending' and new.status = 'processing'
          and new.account_id = '${payer.accountId}') execute function wait_here()`);
    const { id, freezing } = await transaction(system.database, async (hold) => {
      await hold`select pg_advisory_xact_lock(7)`;
      const sent = await payer.send(items);
      await eventually('a decision waits for the advisory lock', 20_000, async () => {
        const rows = await system.database`
          select from pg_locks where locktype = 'advisory' and not granted
             and database = (select oid from pg_database where datname = current_database())`;
        return rows.count > 0 ? true : undefined;
      });
      const command = change(payer.accountId, 'frozen');
      await eventually('the account is frozen', 20_000, async () => {
        const account = await findAccount(system.database, payer.accountId);
        return account?.state === 'frozen' ? true : undefined;
      });
      return { id: sent, freezing: command };
    });
    await freezing;
    const batch = await untilBatch(payer.client, id);
    expect(batch.counts).toMatchObject({ settled: groupSize, failed: 4_000 - groupSize });
    const reasons = (await rowsOf(system, id)).flatMap(({ statusReason }) => statusReason ?? []);
    expect(new Set(reasons)).toEqual(new Set(['account_frozen']));
  });
});

describe('closing an account', () => {
  it('requires that it is frozen, idle and empty, and is final', async () => {
    const { account } = await createTestAccount(system.database, { funds: { USD: 125_000n } });
    const { id } = await requestPayout(system.database, account.id);
    await expect(change(account.id, 'closed')).rejects.toThrow('is open; freeze it first.');
    await change(account.id, 'frozen');
    await expect(change(account.id, 'closed')).rejects.toThrow(
      `${account.id} has payouts that are not final or wait for an operator, such as ${id}.`,
    );
    await decide(id);
    await expect(change(account.id, 'closed')).rejects.toThrow('has a balance in USD');
    await expect(change(account.id, 'frozen')).rejects.toThrow('is frozen already');
    expect(await findAccount(system.database, account.id)).toMatchObject({ state: 'frozen' });

    const empty = await createTestAccount(system.database, { funds: {} });
    await close(empty.account.id);
    await expect(change(empty.account.id, 'open')).rejects.toThrow('stays closed');
    await expect(change(empty.account.id, 'frozen')).rejects.toThrow('stays closed');
  });

  it('is refused while one of its payouts waits for an operator', async () => {
    const payer = await openPayer(system);
    const id = textOf(await payer.ask('settles', { amount: '100000' }), 'id');
    await untilStatus(payer.client, id, 'settled');
    await system.database`
      update payouts set attention_reason = 'contradiction', attention_detail = 'x',
             attention_at = now() where id = ${id}`;
    await change(payer.accountId, 'frozen');
    await expect(change(payer.accountId, 'closed')).rejects.toThrow(`an operator, such as ${id}.`);
    await system.database`
      update payouts set attention_reason = null, attention_detail = null, attention_at = null
       where id = ${id}`;
    await change(payer.accountId, 'closed');
  });

  it('waits for the decisions that were under way when it was frozen', async () => {
    const { account } = await createTestAccount(system.database, { funds: { USD: 125_000n } });
    const { id } = await requestPayout(system.database, account.id);
    const closing: Promise<unknown>[] = [];
    await transaction(system.database, async (sql) => {
      // A decision that has read an open account and then accepts, after which nothing is available.
      await sql`select from lock_funds(${[id]})`;
      await setAccountState(system.database, account.id, 'frozen');
      closing.push(expect(change(account.id, 'closed')).rejects.toThrow('has a balance in USD'));
      await untilOneWaits();
      await sql`update payouts set status = 'canceled' where id = ${id}`;
    });
    await Promise.all(closing);
  });

  it('does not deadlock with a settlement, which locks the balance before the account', async () => {
    const { account } = await createTestAccount(system.database, { funds: { USD: 125_000n } });
    const { id } = await requestPayout(system.database, account.id);
    await change(account.id, 'frozen');
    const closing: Promise<unknown>[] = [];
    await system.database.begin(async (sql) => {
      await sql`select from lock_funds(${[id]})`;
      const closed = setAccountState(system.database, account.id, 'closed');
      closing.push(expect(closed).rejects.toThrow('not final'));
      await untilOneWaits();
      await sql`
        update accounts set event_sequence = event_sequence + 1 where id = ${account.id}`;
    });
    await Promise.all(closing);
  });

  it('refuses a payout that is requested at the same moment', async () => {
    const { account } = await createTestAccount(system.database, { funds: {} });
    await change(account.id, 'frozen');
    const { id } = await transaction(system.database, async (sql) => {
      await setAccountState(sql, account.id, 'closed');
      return requestPayout(system.database, account.id);
    });
    await decide(id);
    expect(await rowOf(system, id)).toMatchObject({
      status: 'failed',
      refusal: { code: 'account_closed' },
    });
  });

  it('leaves its keys read-only', async () => {
    const { account, apiKey } = await createTestAccount(system.database, { funds: {} });
    await close(account.id);
    const client = createClient(system.apiUrl, apiKey);
    expect(await client('GET /v1/payouts')).toMatchObject({ status: 200 });
    for (const route of ['POST /v1/payouts', 'POST /v1/test/fund', 'DELETE /v1/beneficiaries/x']) {
      const { status, body } = await client(route);
      expect({ status, body }).toEqual({ status: 403, body: code('account_closed') });
      expect(body['detail']).toMatch(/ Contact the operator of the service\.$/);
    }
  });

  it('still lets a later return be credited', async () => {
    const payer = await openPayer(system);
    const id = textOf(await payer.ask('comes back', { amount: '100000' }), 'id');
    await untilStatus(payer.client, id, 'settled');
    await close(payer.accountId);
    const row = await rowOf(system, id);
    const amount = String(row.receiveMinor);
    await callBack(system, [newsOf(row, { type: 'returned', amount, code: 'AM04' })]);
    await untilStatus(payer.client, id, 'returned');
    expect((await payer.balance()).available).toBeGreaterThan(90_000n);
  });
});

describe('an account', () => {
  it.each([...invisibleLines, 'Acme\u200b', 'Acme\u202eHbmG', 'Acme\nGmbH'])(
    'is not opened with the name %j, which is not displayed as written',
    async (name) => {
      await expect(openAccount(called(system, '', { name }))).rejects.toMatchObject({
        name: 'UsageError',
        message: expect.stringMatching(/^--name (expects one line of text|is missing)/),
      });
    },
  );

  it('is not funded by hand if it is live', async () => {
    const { account } = await createTestAccount(system.database, { mode: 'live', funds: {} });
    const flags = { account: account.id, currency: 'USD', amount: '1.00' };
    await expect(fundAccount(called(system, '', flags))).rejects.toMatchObject({
      name: 'Refused',
      message: 'Only test accounts can be funded this way.',
    });
  });

  it('is funded with no more than a column holds', async () => {
    const { account } = await createTestAccount(system.database, { funds: {} });
    const flags = { account: account.id, currency: 'USD', amount: '92233720368547758.08' };
    const refusal = '--amount expects a sum of USD above zero, such as 10.00; USD has 2 decimals.';
    await expect(fundAccount(called(system, '', flags))).rejects.toThrow(refusal);
  });
});

describe('the state of an account can be changed', () => {
  it.each(['api', 'worker'] as const)('only by operators, not by the %s', async (role) => {
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

  it('by operators through their own database role', async () => {
    const url = system.urls.operator;
    const database = connectDatabase({ url, poolSize: 1, applicationName: 'test' });
    const { account } = await createTestAccount(system.database, { funds: { USD: 1n } });
    await changeState(called({ database }, account.id), 'frozen');
    await database.end({ timeout: 5 });
    const [row] = await system.database`select state from accounts where id = ${account.id}`;
    expect(row).toEqual({ state: 'frozen' });
  });
});
