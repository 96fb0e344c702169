import { cp, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { listBalanceTransactions } from '../../src/db/balanceTransactions.js';
import { completeBatches } from '../../src/db/batches.js';
import { connectDatabase, type Database, exactlyOne, type Sql } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { listBalances, postEntries } from '../../src/db/ledger.js';
import { migrate } from '../../src/db/migrate.js';
import { findPayoutById } from '../../src/db/payouts.js';
import { storeRailEvents } from '../../src/db/railInbox.js';
import { type Entry, fundEntry, type Posting } from '../../src/domain/ledger.js';
import {
  nextStatuses,
  type PayoutStatus,
  payoutStatuses,
  statusHistory,
} from '../../src/domain/payout.js';
import { requestBatch } from '../fixtures/requestBatch.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestAccount,
  type TestDatabase,
  unbalancedCurrencies,
  untilLockWaits,
  withoutTriggers,
} from '../servers/database.js';

let test: TestDatabase;
let database: Database;
let caller: TestAccount;
const checkViolation = { code: '23514' };

beforeAll(async () => {
  test = await createTestDatabase();
  ({ database } = test);
  caller = await createTestAccount(database);
});
afterAll(() => test.drop());

/** The legal moves that bring a payout into each status. */
const pathTo: Readonly<Record<PayoutStatus, readonly PayoutStatus[]>> = {
  pending: [],
  processing: ['processing'],
  sent: ['processing', 'sent'],
  settled: ['processing', 'sent', 'settled'],
  failed: ['failed'],
  canceled: ['canceled'],
  returned: ['processing', 'sent', 'settled', 'returned'],
};

/** Moves a payout, and sets every column that some status requires. */
async function move(id: string, status: PayoutStatus): Promise<void> {
  await database`
    update payouts
       set status = ${status}, settled_at = now(), rail = 'sandbox',
           source_currency = 'USD', destination_currency = 'EUR',
           source_minor = 1000, fee_minor = 100, net_minor = 900, receive_minor = 800,
           mid_value_minor = 810, rate = 0.89, mid = 0.9, fee_terms_id = 1, beneficiary_version = 1
     where id = ${id}`;
}

async function payoutIn(status: PayoutStatus, accountId = caller.account.id): Promise<string> {
  const id = newId('payout');
  await database`
    insert into payouts (id, account_id, mode, driver, beneficiary_id)
    values (${id}, ${accountId}, 'test', ${id}, 'bnf_1')`;
  for (const step of pathTo[status]) await move(id, step);
  return id;
}

const post = (entry: Entry, payoutId: string | null) =>
  postEntries(database, [{ entry, mode: 'test', accountId: caller.account.id, payoutId }]);

const accept = (amountMinor: bigint): Entry => ({
  kind: 'accept',
  postings: [
    { account: 'available', currency: 'USD', amountMinor: -amountMinor },
    { account: 'held', currency: 'USD', amountMinor },
  ],
});

const balances = () => listBalances(database, caller.account.id);

describe('the ledger refuses', () => {
  const off: readonly (readonly [string, readonly Posting[]])[] = [
    ['one leg', [{ account: 'available', currency: 'USD', amountMinor: 100n }]],
    [
      'two legs that differ',
      [
        { account: 'funding', currency: 'USD', amountMinor: -100n },
        { account: 'available', currency: 'USD', amountMinor: 101n },
      ],
    ],
    [
      'two currencies that only balance together',
      [
        { account: 'funding', currency: 'USD', amountMinor: -100n },
        { account: 'available', currency: 'EUR', amountMinor: 100n },
      ],
    ],
  ];
  it.each(off)('an entry that does not balance: %s', async (_name, postings) => {
    const before = await balances();
    await expect(post({ kind: 'fund', postings }, null)).rejects.toThrow(/does not balance/);
    expect(await balances()).toEqual(before);
  });

  it('two entries that balance only together', async () => {
    const half = (posting: Pick<Posting, 'account' | 'amountMinor'>): Entry => ({
      kind: 'fund',
      postings: [{ ...posting, currency: 'USD' }],
    });
    const owned = { mode: 'test', accountId: caller.account.id, payoutId: null } as const;
    const both = postEntries(database, [
      { ...owned, entry: half({ account: 'available', amountMinor: 5n }) },
      { ...owned, entry: half({ account: 'funding', amountMinor: -5n }) },
    ]);
    await expect(both).rejects.toThrow(/does not balance/);
  });

  it.each([
    "update ledger_entries set amounts_minor = '{1}'",
    'update ledger_entries set created_at = now()',
    'delete from ledger_entries',
    'truncate ledger_entries cascade',
    // The entries refer to the payouts, so this would truncate them too.
    'truncate payouts cascade',
  ])('any change to what is posted: %s', async (statement) => {
    await expect(database.unsafe(statement)).rejects.toThrow(/append-only/);
  });

  it('a second entry of one kind for a payout', async () => {
    const payout = await payoutIn('processing');
    await post(accept(1_000n), payout);
    const after = await balances();
    await expect(post(accept(1_000n), payout)).rejects.toMatchObject({ code: '23505' });
    expect(await balances()).toEqual(after);
  });

  it('to debit more than a customer has, even by one minor unit', async () => {
    const { account } = await createTestAccount(database, { funds: { USD: 999n } });
    const owned = { mode: 'test', accountId: account.id, payoutId: null } as const;
    const payoutId = await payoutIn('processing', account.id);
    const take = () => postEntries(database, [{ ...owned, entry: accept(1_000n), payoutId }]);
    await expect(take()).rejects.toMatchObject(checkViolation);
    expect(await listBalances(database, account.id)).toMatchObject([{ availableMinor: 999n }]);
    await postEntries(database, [{ ...owned, entry: fundEntry('USD', 1n) }]);
    await take();
    expect(await listBalances(database, account.id)).toMatchObject([
      { availableMinor: 0n, heldMinor: 1_000n },
    ]);
  });

  it('to lose a minor unit when many post to one balance at once', async () => {
    const other = await createTestAccount(database, { funds: {} });
    const owned = { mode: 'test', accountId: other.account.id, payoutId: null } as const;
    await Promise.all(
      Array.from({ length: 20 }, () =>
        postEntries(database, [{ ...owned, entry: fundEntry('JPY', 7n) }]),
      ),
    );
    const [yen] = await listBalances(database, other.account.id);
    expect(yen).toMatchObject({ currency: 'JPY', availableMinor: 140n });
    expect(await unbalancedCurrencies(database)).toEqual([]);
  });
});

const accountIn = (kind: string, currency: string) => `array[(select id from ledger_accounts
  where kind = '${kind}' and currency = '${currency}' and mode = 'test')]`;

/** Inserts an entry directly, bypassing the function that would write it correctly. */
const transfer = (changes: Readonly<Record<string, string>>) => {
  const values = {
    kind: "'fund'",
    from_ids: `array[(select id from ledger_accounts
      where kind = 'funding' and currency = 'USD' and mode = 'test')]`,
    to_ids: `array[(select ledger_account_id from ledger_balances
      where account_id = '${caller.account.id}' and kind = 'available' and currency = 'USD')]`,
    amounts_minor: "'{5}'",
    account_id: `'${caller.account.id}'`,
    currency: "'USD'",
    ...changes,
  };
  return database.unsafe(`insert into ledger_entries (${Object.keys(values).join(', ')})
    values (${Object.values(values).join(', ')})`);
};

describe('only a posting moves a balance:', () => {
  it('an entry does not mix test and live accounts', async () => {
    await createTestAccount(database, { mode: 'live', funds: { USD: 5n } });
    const before = await balances();
    const live = "array[(select id from ledger_accounts where kind = 'funding' and mode = 'live')]";
    await expect(transfer({ from_ids: live })).rejects.toThrow(/mixes test and live/);
    expect(await balances()).toEqual(before);
  });

  it.each([
    [{ from_ids: "'{0}'" }, /names no account of its currency/],
    [{ to_ids: "'{0}'" }, /names no account of its currency/],
    [{ to_ids: "'{null}'" }, /names no account of its currency/],
    [{ from_ids: accountIn('funding', 'EUR') }, /names no account of its currency/],
    [{ to_ids: accountIn('funding', 'USD') }, /names no account of its currency/],
    [{ to_ids: "'{}'", from_ids: "'{}'", amounts_minor: "'{}'" }, /check constraint/],
    [{ from_ids: "'{1,1}'" }, /check constraint/],
    [{ amounts_minor: "'{null}'" }, /check constraint/],
    [{ amounts_minor: "'{0}'" }, /amounts_minor/],
    [{ amounts_minor: "'{-5}'" }, /amounts_minor/],
    [{ account_id: 'null', currency: 'null' }, /another customer or currency/],
    [{ account_id: "'acc_another'" }, /another customer or currency/],
    [{ currency: "'EUR'" }, /another customer or currency/],
  ] as const)('an entry with %j is refused', async (changes, message) => {
    const before = await balances();
    await expect(transfer(changes)).rejects.toThrow(message);
    expect(await balances()).toEqual(before);
  });

  it('a posting to a customer without a balance row is refused', async () => {
    const { account } = await createTestAccount(database);
    const fund = (currency: string) =>
      postEntries(database, [
        { entry: fundEntry(currency, 5n), mode: 'test', accountId: account.id, payoutId: null },
      ]);
    await withoutTriggers(
      database,
      (sql) => sql`
        delete from ledger_balances where account_id = ${account.id} and currency = 'USD'`,
    );
    await expect(fund('USD')).rejects.toThrow(/has no balance/);
    await fund('EUR');
    expect(await listBalances(database, account.id)).toEqual([
      { currency: 'EUR', availableMinor: 1_000_005n, heldMinor: 0n },
    ]);
  });

  it.each([
    'update ledger_balances set amount_minor = amount_minor + 1',
    'update ledger_balances set account_id = account_id',
    'delete from ledger_balances',
    'truncate ledger_balances',
    `insert into ledger_balances (ledger_account_id, account_id, kind, currency, amount_minor)
       select id, 'acc_1', 'available', currency, 1 from ledger_accounts where kind = 'funding'`,
  ])('%s is refused', async (statement) => {
    const before = await balances();
    await expect(database.unsafe(statement)).rejects.toThrow(/moved by postings alone/);
    expect(await balances()).toEqual(before);
  });
});

describe('the history of a balance', () => {
  const yen = (sql: Sql, accountId: string, amountMinor: bigint) =>
    postEntries(sql, [
      { entry: fundEntry('JPY', amountMinor), mode: 'test', accountId, payoutId: null },
    ]);

  /** The amounts as seen by a reader who pages through the list. */
  async function amountsOf(accountId: string): Promise<readonly bigint[]> {
    const page = { limit: 10, toward: 'older', from: null } as const;
    const { rows } = await listBalanceTransactions(database, accountId, page, {});
    return rows.map((row) => row.amountMinor).reverse();
  }

  it('lists what was committed first before the postings of a longer transaction', async () => {
    const { account } = await createTestAccount(database, { funds: {} });
    const { id } = account;
    await database.begin(async (long) => {
      await long`select now()`;
      await yen(database, id, 1n);
      // Longer than the resolution of the list's times.
      await setTimeout(5);
      await yen(database, id, 2n);
      await setTimeout(5);
      await yen(long, id, 3n);
    });
    expect(await amountsOf(id)).toEqual([1n, 2n, 3n]);
    const [entries] = await database<{ amounts: bigint[] }[]>`
      select array_agg(p.amount_minor order by e.created_at, e.id) as amounts
        from ledger_entries e join ledger_postings p on p.entry_id = e.id
       where p.ledger_account_id = (select ledger_account_id from ledger_balances
                                     where account_id = ${id})`;
    expect(entries?.amounts.map(BigInt)).toEqual([1n, 2n, 3n]);
  });

  it('is timed when the lock on the balance is acquired, not when it is requested', async () => {
    const { account } = await createTestAccount(database, { funds: { JPY: 1n } });
    const { id } = account;
    let waiting: Promise<void> = Promise.resolve();
    await database.begin(async (sql) => {
      await sql`
        select from ledger_balances where account_id = ${id} for no key update`;
      waiting = yen(database, id, 3n);
      await untilLockWaits(database, 'a posting waits for the balance', 2_000);
      await setTimeout(5);
      await yen(sql, id, 2n);
    });
    await waiting;
    expect(await amountsOf(id)).toEqual([1n, 2n, 3n]);
  });

  it('does not run backwards when the clock is set back', async () => {
    const { account } = await createTestAccount(database, { funds: { JPY: 1n } });
    const { id } = account;
    await withoutTriggers(
      database,
      (sql) => sql`
        with moved as (
          update ledger_entries set created_at = created_at + interval '1 hour'
           where account_id = ${id} returning created_at
        )
        update ledger_balances set moved_at = (select max(created_at) from moved)
         where account_id = ${id}`,
    );
    await yen(database, id, 2n);
    expect(await amountsOf(id)).toEqual([1n, 2n]);
  });
});

it('a batch is not complete before the last move of its items', async () => {
  const batchId = await database.begin((sql) => requestBatch(sql, caller.account.id, { count: 2 }));
  const end = (sql: Sql, index: number) => sql`
    update payouts set status = 'failed' where batch_id = ${batchId} and batch_index = ${index}`;
  await database.begin(async (long) => {
    await end(long, 0);
    await setTimeout(5);
    await database.begin(async (sql) => {
      await end(sql, 1);
      await completeBatches(sql, [batchId]);
    });
    await completeBatches(long, [batchId]);
  });
  const [row] = await database<{ isAfter: boolean }[]>`
    select b.completed_at >= max(p.failed_since) as is_after
      from batches b join payouts p on p.batch_id = b.id where b.id = ${batchId} group by b.id`;
  expect(row).toEqual({ isAfter: true });
});

describe('what was recorded stays: it is refused to change', () => {
  it.each([
    "account_id = 'acc_1'",
    "source_currency = 'JPY'",
    "destination_currency = 'JPY'",
    "fixed_side = 'destination'",
    'amount = amount + 1',
    'source_minor = source_minor + 1, net_minor = net_minor + 1',
    'fee_minor = fee_minor - 1, net_minor = net_minor + 1',
    'receive_minor = receive_minor + 1',
    'mid_value_minor = mid_value_minor + 1',
    'rate = rate * 2',
    'mid = mid * 2',
    "rate_provider = 'nobody'",
    'rate_as_of = now()',
    'fee_terms_id = 2',
    'spread_terms_id = 2',
  ])('a quote: %s', async (change) => {
    const { quoteId } = await requestPayout(database, caller.account.id);
    const changed = database.unsafe(`update quotes set ${change} where id = '${quoteId}'`);
    await expect(changed).rejects.toThrow(/what it was priced with/);
  });

  it('which payout has used a quote', async () => {
    const { id, quoteId } = await requestPayout(database, caller.account.id);
    const other = await requestPayout(database, caller.account.id);
    const use = (by: string | null) =>
      database`update quotes set used_by = ${by} where id = ${quoteId}`;
    await use(id);
    await use(id);
    await expect(use(other.id)).rejects.toThrow(/used once/);
    await expect(use(null)).rejects.toThrow(/used once/);
  });

  it.each([
    'reference',
    'metadata',
    'quote_id',
    'beneficiary_id',
    'mode',
    'account_id',
    'batch_id',
  ])('what was requested for a payout that is not decided yet: %s', async (column) => {
    const { id } = await requestPayout(database, caller.account.id);
    const changed = database.unsafe(`update payouts set ${column} = null where id = '${id}'`);
    await expect(changed).rejects.toThrow(/what was asked .* is frozen/);
  });

  it('the amount that was requested for a payout', async () => {
    const id = newId('payout');
    await database`
      insert into payouts (id, account_id, mode, driver, beneficiary_id, amount, fixed_side)
      values (${id}, ${caller.account.id}, 'test', ${id}, 'bnf_1', 1000, 'source')`;
    for (const change of ['amount = 1001', "fixed_side = 'destination'", 'amount = null']) {
      const changed = database.unsafe(`update payouts set ${change} where id = '${id}'`);
      await expect(changed, change).rejects.toThrow(/what was asked .* is frozen/);
    }
  });

  it.each(['pending', 'settled'] as const)('the history of a payout that is %s', async (status) => {
    const id = await payoutIn(status);
    for (const status of payoutStatuses.filter((each) => each !== 'pending')) {
      const changed = database.unsafe(
        `update payouts set ${status}_since = null where id = '${id}'`,
      );
      await expect(changed, status).rejects.toThrow(/history .* written by its moves/);
    }
  });

  it('the reason of the current status', async () => {
    const id = await payoutIn('failed');
    const changed = database`update payouts set status_reason = 'another' where id = ${id}`;
    await expect(changed).rejects.toThrow(/history .* written by its moves/);
  });

  it('the facts that have moved a payout', async () => {
    const id = await payoutIn('settled');
    await database`update payouts set applied_facts = '{7}' where id = ${id}`;
    await database`update payouts set applied_facts = applied_facts || '{9}' where id = ${id}`;
    for (const facts of ['{9}', '{}', null]) {
      const changed = database`update payouts set applied_facts = ${facts} where id = ${id}`;
      await expect(changed, facts ?? 'none').rejects.toThrow(/a fact that was applied stays/);
    }
  });

  it.each([
    `update rail_inbox set fact = '{"kind": "rejected"}'`,
    "update rail_inbox set rail_event_id = 'another'",
    'update rail_inbox set payout_id = null',
    'delete from rail_inbox',
  ])('what a rail has reported: %s', async (statement) => {
    const { id } = await requestPayout(database, caller.account.id);
    const report = { kind: 'settled', amountMinor: 1n, currency: 'EUR' } as const;
    await storeRailEvents(database, 'sandbox', [{ id: `test:${id}`, key: id, report }]);
    await expect(database.unsafe(statement)).rejects.toThrow(/what a rail has said/);
  });
});

describe('the status transitions of a payout', () => {
  it('are the same in the database and in the code', async () => {
    const rows = await database<{ fromStatus: string; toStatus: string }[]>`
      select from_status, to_status from payout_moves`;
    const inCode = payoutStatuses.flatMap((from) =>
      nextStatuses[from].map((to) => `${from} → ${to}`),
    );
    const inDatabase = rows.map(({ fromStatus, toStatus }) => `${fromStatus} → ${toStatus}`);
    expect(inDatabase.sort()).toEqual(inCode.sort());
  });

  const pairs = payoutStatuses.flatMap((from) =>
    payoutStatuses.filter((to) => to !== from).map((to) => [from, to] as const),
  );
  const isLegal = ([from, to]: readonly [PayoutStatus, PayoutStatus]) =>
    nextStatuses[from].some((next) => next === to);

  it.each(pairs.filter(isLegal))('lead from %s to %s, and are recorded', async (from, to) => {
    const id = await payoutIn(from);
    await move(id, to);
    const row = exactlyOne(await findPayoutById(database, id));
    expect(row.status).toBe(to);
    const history = statusHistory(row).map(({ status }) => status);
    expect(history).toEqual(['pending', ...pathTo[from], to]);
  });

  it.each(pairs.filter((pair) => !isLegal(pair)))('never from %s to %s', async (from, to) => {
    const id = await payoutIn(from);
    await expect(move(id, to)).rejects.toThrow(`no move from ${from} to ${to}`);
  });

  it.each(payoutStatuses.filter((status) => status !== 'pending'))(
    'begin at pending, not at %s',
    async (status) => {
      const id = newId('payout');
      const inserted = database`
        insert into payouts (id, account_id, mode, driver, beneficiary_id, status, settled_at,
                             rail, source_minor, fee_minor, net_minor)
        values (${id}, ${caller.account.id}, 'test', ${id}, 'bnf_1', ${status}, now(),
                'sandbox', 1000, 100, 900)`;
      await expect(inserted).rejects.toThrow(/begins as pending/);
    },
  );
});

describe('an accepted payout', () => {
  it.each([
    "source_currency = 'GBP'",
    "destination_currency = 'GBP'",
    'source_minor = 1001, net_minor = 901',
    'fee_minor = 99, net_minor = 901',
    'receive_minor = 801',
    'mid_value_minor = 811',
    'rate = 0.8901',
    'mid = 0.91',
    'fee_terms_id = 2',
    'spread_terms_id = 2',
    "beneficiary_id = 'bnf_2'",
    'source_minor = null, fee_minor = null, net_minor = null',
  ])('keeps what was frozen: %s is refused', async (change) => {
    const id = await payoutIn('sent');
    const changed = database.unsafe(`update payouts set ${change} where id = '${id}'`);
    await expect(changed).rejects.toThrow(/frozen/);
  });

  it('has a net amount that equals the amount less the fee', async () => {
    const id = await payoutIn('sent');
    const changed = database`update payouts set net_minor = 901 where id = ${id}`;
    await expect(changed).rejects.toMatchObject(checkViolation);
  });

  it('stays with its account', async () => {
    const id = await payoutIn('sent');
    const other = await createTestAccount(database);
    const moved = database`
      update payouts set account_id = ${other.account.id} where id = ${id}`;
    await expect(moved).rejects.toThrow(/frozen/);
  });
});

describe('a payout', () => {
  it.each(['pending', 'settled', 'failed'] as const)(
    'that is %s is not deleted',
    async (status) => {
      const id = await payoutIn(status);
      await expect(database`delete from payouts where id = ${id}`).rejects.toThrow(/append-only/);
    },
  );

  it.each(['fee_minor', 'receive_minor', 'rate', 'source_currency', 'fee_terms_id'])(
    'cannot be accepted without %s',
    async (column) => {
      const id = await payoutIn('pending');
      const changed = database.begin(async (sql) => {
        // The payout's own trigger would refuse to change frozen values, so it is accepted again.
        await sql`set local session_replication_role = replica`;
        await sql`
          update payouts set source_currency = 'USD', destination_currency = 'EUR',
                 source_minor = 1000, fee_minor = 100, net_minor = 900, receive_minor = 800,
                 mid_value_minor = 810, rate = 0.89, mid = 0.9, fee_terms_id = 1, beneficiary_version = 1
           where id = ${id}`;
        await sql.unsafe(`update payouts set ${column} = null where id = '${id}'`);
      });
      await expect(changed).rejects.toMatchObject(checkViolation);
    },
  );

  it('of a test account reaches only the sandbox bank', async () => {
    const id = await payoutIn('pending');
    const changed = database`
      update payouts set status = 'processing', rail = 'swift', source_currency = 'USD',
                         destination_currency = 'EUR', source_minor = 1000, fee_minor = 100,
                         net_minor = 900, receive_minor = 800, mid_value_minor = 810,
                         rate = 0.89, mid = 0.9
       where id = ${id}`;
    await expect(changed).rejects.toMatchObject(checkViolation);
  });

  it('of a live account never reaches the sandbox bank', async () => {
    const { account } = await createTestAccount(database, { mode: 'live' });
    const id = newId('payout');
    await database`
      insert into payouts (id, account_id, mode, driver, beneficiary_id)
      values (${id}, ${account.id}, 'live', ${id}, 'bnf_1')`;
    await expect(move(id, 'processing')).rejects.toMatchObject(checkViolation);
  });

  it('has the mode of its account', async () => {
    const id = newId('payout');
    const inserted = database`
      insert into payouts (id, account_id, mode, driver, beneficiary_id)
      values (${id}, ${caller.account.id}, 'live', ${id}, 'bnf_1')`;
    await expect(inserted).rejects.toMatchObject({ code: '23503' });
  });
});

describe('the migrations', () => {
  it('do nothing the second time', async () => {
    expect(await migrate(database)).toEqual([]);
  });

  it('are refused when a file was changed after it was applied', async () => {
    const [first] = await database<{ name: string; checksum: string }[]>`
      select name, checksum from migrations order by name limit 1`;
    const { name, checksum } = exactlyOne(first);
    await database`update migrations set checksum = 'another' where name = ${name}`;
    await expect(migrate(database)).rejects.toThrow(`Migration ${name} was changed`);
    await database`update migrations set checksum = ${checksum} where name = ${name}`;
    expect(await migrate(database)).toEqual([]);
  });

  it('are refused by a database of another schema', async () => {
    const other = '0000_other.sql';
    await database`insert into migrations (name, checksum) values (${other}, '')`;
    await expect(migrate(database)).rejects.toThrow(`does not know ${other}`);
    await database`delete from migrations where name = ${other}`;
    await database`insert into migrations (name, checksum) values ('9999_newer.sql', '')`;
    expect(await migrate(database)).toEqual([]);
    await database`delete from migrations where name = '9999_newer.sql'`;
  });

  it('in steps are refused if their changed rows cannot be counted', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'corridor-migrations-'));
    const folder = pathToFileURL(`${directory}/`);
    onTestFinished(() => rm(directory, { recursive: true }));
    await cp(new URL('../../src/db/migrations', import.meta.url), folder, { recursive: true });
    const name = '9000_steps.sql';
    for (const text of ['select 1; select 2', 'create table t (a int)']) {
      await writeFile(join(directory, name), `-- In steps.\n${text}`);
      await expect(migrate(database, folder)).rejects.toThrow(`${name} is in steps`);
    }
    const rows = await database`select from migrations where name = ${name}`;
    expect(rows).toHaveLength(0);
  });

  it('are applied once by five processes that start at once', async () => {
    const empty = await createTestDatabase();
    await empty.database.unsafe('drop schema public cascade; create schema public');
    const processes = Array.from({ length: 5 }, () =>
      connectDatabase({ url: empty.url, poolSize: 2, applicationName: 'test-migrate' }),
    );
    try {
      const applied = await Promise.all(processes.map((process) => migrate(process)));
      const folder = new URL('../../src/db/migrations/', import.meta.url);
      expect(applied.flat().sort()).toEqual((await readdir(folder)).sort());
    } finally {
      await Promise.all(processes.map((process) => process.end({ timeout: 5 })));
      await empty.drop();
    }
  });
});
