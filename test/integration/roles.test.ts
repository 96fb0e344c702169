import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ledgerActivities } from '../../src/activities/ledger.js';
import { connectDatabase, type Database } from '../../src/db/client.js';
import { listBalances, type OwnedEntry, postEntries } from '../../src/db/ledger.js';
import { findPayoutById, type PayoutRow } from '../../src/db/payouts.js';
import { decideRate, pinProvider, storeRates } from '../../src/db/rates.js';
import { allowLogins, databaseRoles, loginUrls } from '../../src/db/roles.js';
import type { LedgerAccount, Posting } from '../../src/domain/ledger.js';
import { createRails } from '../../src/rails/registry.js';
import { QuietRail } from '../fakes/quietRail.js';
import { silentDeliverer } from '../fakes/silentDeliverer.js';
import { usualFactRules } from '../fixtures/factRules.js';
import { signedBy } from '../fixtures/operators.js';
import { rateMaximumAgeMs, requestPayout } from '../fixtures/requestPayout.js';
import {
  createTestAccount,
  createTestDatabase,
  type TestDatabase,
  unbalancedCurrencies,
} from '../servers/database.js';

let test: TestDatabase;
/** One connection for each kind of login. */
const as = new Map<string, Database>();

const connect = (url: string) => connectDatabase({ url, poolSize: 1, applicationName: 'test' });
const refused = { code: '42501' };

beforeAll(async () => {
  test = await createTestDatabase();
  for (const role of databaseRoles) as.set(role, connect(test.urls[role]));
});
afterAll(async () => {
  expect(await unbalancedCurrencies(test.database)).toEqual([]);
  await Promise.all([...as.values()].map((database) => database.end({ timeout: 5 })));
  await test.drop();
});

function connectedAs(role: string): Database {
  const database = as.get(role);
  if (database === undefined) throw new Error(`There is no connection as ${role}.`);
  return database;
}

/** Only the owner may change these tables, and only post_entries may add to the ledger. */
const ledger = ['ledger_accounts', 'ledger_balances', 'ledger_entries'];
const audit = ['operator_actions', 'operator_requests'];
/** Prices are calculated from these tables; only take_accepted_rates may copy rates. */
const priced = ['rates', 'rate_decisions', 'current_rates'];
const kept = [...ledger, ...audit, ...priced, 'payout_moves', 'events', 'migrations'];

describe.each(databaseRoles)('a connection as the %s role', (role) => {
  it.each([
    'update ledger_balances set amount_minor = amount_minor + 1',
    'delete from ledger_balances',
    'truncate ledger_balances',
    "insert into ledger_balances values (1, 'acc_1', 'available', 'EUR', 1)",
    "insert into ledger_entries (kind, from_ids, to_ids, amounts_minor) values ('fund', '{1}', '{2}', '{1}')",
    "update ledger_entries set amounts_minor = '{1}'",
    "insert into payout_moves values ('settled', 'pending')",
    'delete from payout_moves',
    "update operator_actions set operator = 'somebody else'",
    "update events set facts = '{}'",
    'update payouts set settled_since = now()',
    'update payouts set amount = 1, reference = null',
    'delete from payouts',
    'delete from rail_inbox',
    'update quotes set receive_minor = receive_minor * 10',
    "update rail_inbox set fact = '{}'",
    "update accounts set state = 'open'",
    'update current_rates set per_euro = per_euro * 2',
    'delete from current_rates',
    "insert into current_rates values ('XXX', 1, 1, 'ecb', now())",
    'alter table ledger_balances disable trigger all',
    'alter table ledger_entries disable trigger applied',
    'alter table ledger_entries owner to current_user',
    'drop trigger frozen on payouts',
    'create trigger mine before insert on payouts execute function refuse_change()',
    'create or replace function record_status() returns trigger language plpgsql as $$ begin return new; end $$',
    'create table public.mine (n int)',
    'set session_replication_role = replica',
    "select allow_login('corridor_worker', 'mine', 'mine')",
    'create role mine',
  ])('is refused: %s', async (statement) => {
    await expect(connectedAs(role).unsafe(statement)).rejects.toMatchObject(refused);
  });

  it('cannot become the owner', async () => {
    const owner = new URL(test.url).username;
    await expect(connectedAs(role).unsafe(`set role "${owner}"`)).rejects.toMatchObject(refused);
    const session = connectedAs(role).unsafe(`set session authorization "${owner}"`);
    await expect(session).rejects.toMatchObject(refused);
  });

  it('owns no table and may alter none', async () => {
    const rows = await test.database<{ table: string }[]>`
      select c.relname as table from pg_class c
       where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'v', 'm', 'p')
         and (c.relowner = ${`corridor_${role}`}::regrole
           or has_table_privilege(${`corridor_${role}`}, c.oid, 'truncate, trigger, references'))`;
    expect(rows).toEqual([]);
    const [rights] = await test.database`
      select rolsuper or rolcreaterole or rolcreatedb or rolbypassrls or rolreplication as any,
             has_schema_privilege(oid, 'public', 'create') as creates
        from pg_roles where rolname = ${`corridor_${role}`}`;
    expect(rights).toEqual({ any: false, creates: false });
  });

  it.each(kept)('may not update or delete rows of %s', async (table) => {
    const [may] = await test.database`
      select has_any_column_privilege(${`corridor_${role}`}, ${table}, 'update') as update,
             has_table_privilege(${`corridor_${role}`}, ${table}, 'delete') as delete`;
    expect(may).toEqual({ update: false, delete: false });
  });

  it.each(ledger)('may not insert into %s directly', async (table) => {
    const [may] = await test.database`
      select has_any_column_privilege(${`corridor_${role}`}, ${table}, 'insert') as insert`;
    expect(may).toEqual({ insert: false });
  });

  it('can read every table, even of later migrations, except keys, secrets and sessions', async () => {
    await test.database`create table later (n int)`;
    const [unread] = await test.database<{ tables: string[] }[]>`
      select coalesce(array_agg(relname::text order by relname), '{}') as tables from pg_class
       where relnamespace = 'public'::regnamespace and relkind in ('r', 'v')
         and not has_table_privilege(${`corridor_${role}`}, oid, 'select')`;
    const closed =
      role === 'operator' ? ['beneficiary_keys', 'openable_beneficiaries', 'webhook_secrets'] : [];
    const [every] = await test.database<{ tables: string[] }[]>`
      select array_agg(relname::text order by relname) as tables from pg_class
       where relnamespace = 'public'::regnamespace and relkind in ('r', 'v')`;
    await test.database`drop table later`;
    const hidden = [...closed, 'operator_sessions', 'operators'].toSorted();
    // The sign-in service's role may read nothing at all.
    expect(unread).toEqual(role === 'sign_in' ? every : { tables: hidden });
    const hashes = connectedAs(role)`select key_hash from operators`;
    await expect(hashes).rejects.toMatchObject(refused);
  });
});

describe('every function', () => {
  it('resolves names in the public schema, and not in a temporary one of its caller', async () => {
    const rows = await test.database`
      select p.proname as name from pg_proc p join pg_language l on l.oid = p.prolang
       where p.pronamespace = 'public'::regnamespace and l.lanname <> 'sql'
         and not ('search_path=pg_catalog, public, pg_temp' = any (coalesce(p.proconfig, '{}')))`;
    expect(rows).toEqual([]);
  });

  it('that runs as the owner cannot be called by everybody', async () => {
    const rows = await test.database<{ name: string; everybody: boolean }[]>`
      select p.proname as name, exists (select from aclexplode(p.proacl) where grantee = 0)
               or p.proacl is null as everybody
        from pg_proc p where p.pronamespace = 'public'::regnamespace and p.prosecdef
       order by p.proname`;
    expect(rows.map(({ name }) => name)).toContain('post_entries');
    expect(rows.filter(({ everybody }) => everybody)).toEqual([]);
  });
});

it('rates are put in use by the roles that store them or decide on them, and by no other', async () => {
  const own = await createTestDatabase({ hasRates: false });
  const [operator, api] = [connect(own.urls.operator), connect(own.urls.api)];
  const by = signedBy();
  const [first, second] = ['first', 'second'].map((provider) => ({ provider, isForTests: false }));
  if (first === undefined || second === undefined) throw new Error('Two were expected.');
  const store = (provider: typeof first, usd: string, agoMs: number) =>
    storeRates(own.worker, provider, {
      asOf: new Date(Date.now() - agoMs),
      perEuro: new Map([['USD', usd]]),
    });
  const inUse = async () =>
    (await own.database`select provider, per_euro::float as usd from current_rates`).map(
      ({ provider, usd }) => `${provider} ${usd}`,
    );
  try {
    await store(first, '1.1', 60_000);
    expect(await inUse()).toEqual(['first 1.1']);
    const [waiting] = await store(first, '1.5', 0);
    expect(await inUse()).toEqual(['first 1.1']);
    expect(await decideRate(operator, `${waiting?.id}`, 'accepted', by)).toBe(true);
    expect(await inUse()).toEqual(['first 1.5']);
    await pinProvider(operator, second, by);
    expect(await inUse()).toEqual([]);
    await expect(api`select take_accepted_rates('{USD}')`).rejects.toMatchObject(refused);
    await store(second, '1.5', 0);
    expect(await inUse()).toEqual(['second 1.5']);
  } finally {
    await Promise.all([operator, api].map((database) => database.end({ timeout: 5 })));
    await own.drop();
  }
});

it('a status change is checked against the real table of moves, not a temporary one', async () => {
  const { account } = await createTestAccount(test.database);
  const { id } = await requestPayout(test.database, account.id);
  const moved = connectedAs('worker').begin(async (sql) => {
    await sql`create temp table payout_moves on commit drop as
      select 'pending' as from_status, 'settled' as to_status`;
    await sql`update payouts set status = 'settled', settled_at = now(), rail = 'sandbox',
      source_minor = 1000, fee_minor = 0, net_minor = 1000 where id = ${id}`;
  });
  await expect(moved).rejects.toThrow('no move from pending to settled');
});

/** A payout that a worker has accepted, with the account that owns it. */
async function accepted() {
  const { account } = await createTestAccount(test.database);
  const { id } = await requestPayout(test.database, account.id);
  const rails = createRails([new QuietRail()]);
  const { decidePayouts } = ledgerActivities({
    database: test.worker,
    rails,
    rateMaximumAgeMs,
    factRules: usualFactRules,
    deliverer: silentDeliverer,
  });
  await decidePayouts({ driver: id, ids: [id], workflowAgeMs: 0 });
  const row = await findPayoutById(test.database, id);
  if (row === undefined) throw new Error('The payout does not exist.');
  return row;
}

const leg = (from: LedgerAccount, to: LedgerAccount, currency: string, amountMinor: bigint) => [
  { account: from, currency, amountMinor: -amountMinor },
  { account: to, currency, amountMinor },
];

const entryOf = (
  row: PayoutRow,
  kind: OwnedEntry['entry']['kind'],
  postings: readonly Posting[],
): OwnedEntry => ({
  entry: { kind, postings },
  mode: row.mode,
  accountId: row.accountId,
  payoutId: row.id,
});

describe('an entry is posted only if it matches its payout:', () => {
  const amount = (row: PayoutRow) => row.sourceMinor ?? 0n;
  const release = (row: PayoutRow, amountMinor: bigint) =>
    entryOf(row, 'release', leg('held', 'available', 'USD', amountMinor));
  const post = (entry: OwnedEntry) => postEntries(connectedAs('worker'), [entry]);

  it('a hold is not released while its payout is under way', async () => {
    const row = await accepted();
    await expect(post(release(row, amount(row)))).rejects.toThrow(/comes to: release/);
  });

  it('a release has no other postings that cancel out', async () => {
    const row = await accepted();
    await test.worker`update payouts set status = 'failed' where id = ${row.id}`;
    const cancelingOut = [
      ...leg('held', 'available', 'USD', amount(row)),
      ...leg('available', 'losses', 'USD', 5n),
      ...leg('losses', 'available', 'USD', 5n),
    ];
    await expect(post(entryOf(row, 'release', cancelingOut))).rejects.toThrow(/in both directions/);
  });

  it('a hold is released in full, once, and to its own customer', async () => {
    const row = await accepted();
    const { account: stranger } = await createTestAccount(test.database);
    await test.worker`update payouts set status = 'failed' where id = ${row.id}`;
    const full = release(row, amount(row));
    for (const wrong of [
      release(row, amount(row) + 1n),
      release(row, amount(row) - 1n),
      entryOf(row, 'release', []),
      entryOf(row, 'release', leg('held', 'fx_position', 'USD', amount(row))),
      entryOf(row, 'release', [
        ...leg('held', 'available', 'USD', amount(row)),
        ...leg('fx_position', 'available', 'EUR', 1n),
      ]),
      entryOf(row, 'settle', leg('held', 'fx_position', 'USD', amount(row))),
      { ...full, accountId: stranger.id },
      { ...full, mode: 'live' as const },
      { ...full, payoutId: 'po_absent' },
    ]) {
      await expect(post(wrong)).rejects.toThrow(/not what its payout comes to/);
    }
    const held = await listBalances(test.database, row.accountId);
    expect(held).toContainEqual(expect.objectContaining({ heldMinor: amount(row) }));
    await post(full);
    await expect(post(full)).rejects.toMatchObject({ code: '23505' });
    const free = await listBalances(test.database, row.accountId);
    expect(free).toContainEqual(
      expect.objectContaining({ currency: 'USD', availableMinor: 1_000_000n, heldMinor: 0n }),
    );
  });

  it('a settlement credits the rail with exactly what the beneficiary receives', async () => {
    const row = await accepted();
    await test.worker`update payouts set status = 'sent' where id = ${row.id}`;
    await test.worker`
      update payouts set status = 'settled', settled_at = now() where id = ${row.id}`;
    const settle = (receiveMinor: bigint) =>
      entryOf(row, 'settle', [
        ...leg('held', 'fx_position', 'USD', amount(row)),
        ...leg('fx_position', 'rail_settlement', 'EUR', receiveMinor),
      ]);
    const receivedMinor = row.receiveMinor ?? 0n;
    await expect(post(settle(receivedMinor + 1n))).rejects.toThrow(/not what its payout comes to/);
    await expect(post(settle(receivedMinor - 1n))).rejects.toThrow(/not what its payout comes to/);
    await post(settle(receivedMinor));
  });
});

describe('a step is posted after the one that it follows, or together with it:', () => {
  /** Moves a payout through these statuses, one at a time. */
  async function move(row: PayoutRow, ...path: readonly string[]): Promise<void> {
    for (const status of path) {
      await test.worker`
        update payouts set status = ${status}, settled_at = now(), returned_minor = receive_minor
         where id = ${row.id}`;
    }
  }
  const amount = (minor: bigint | null) => minor ?? 0n;
  const post = (...entries: readonly OwnedEntry[]) => postEntries(connectedAs('worker'), entries);
  const settle = (row: PayoutRow) =>
    entryOf(row, 'settle', [
      ...leg('held', 'fx_position', 'USD', amount(row.sourceMinor)),
      ...leg('fx_position', 'rail_settlement', 'EUR', amount(row.receiveMinor)),
    ]);
  const giveBack = (row: PayoutRow) =>
    entryOf(row, 'return', [
      ...leg('fx_position', 'available', 'USD', amount(row.netMinor)),
      ...leg('rail_settlement', 'fx_position', 'EUR', amount(row.receiveMinor)),
    ]);
  const mismatch = /not what its payout comes to/;

  it('a return needs a settlement', async () => {
    const row = await accepted();
    await move(row, 'sent', 'settled', 'returned');
    await expect(post(giveBack(row))).rejects.toThrow(mismatch);
    await expect(post(giveBack(row), settle(row))).rejects.toThrow(mismatch);
    await post(settle(row), giveBack(row));
  });

  it('a return needs a settlement that was not reversed', async () => {
    const row = await accepted();
    await move(row, 'sent', 'settled');
    await post(settle(row));
    await test.database`
      insert into ledger_entries (payout_id, kind, action_id, reverses, from_ids, to_ids,
        amounts_minor, account_id, currency)
      select ${row.id}, 'correction', 'op_test', id, to_ids, from_ids, amounts_minor, account_id,
             currency from ledger_entries
       where payout_id = ${row.id} and kind = 'settle'`;
    await move(row, 'returned');
    await expect(post(giveBack(row))).rejects.toThrow(mismatch);
  });

  it('a settlement or a release needs the hold of its own payout', async () => {
    const holder = await accepted();
    const unheld = async () => {
      const { id } = await requestPayout(test.database, holder.accountId);
      await test.worker`
        update payouts set status = 'processing', rail = 'sandbox', source_minor = 1000,
               fee_minor = 100, net_minor = 900, receive_minor = 800, mid_value_minor = 810,
               rate = 0.89, mid = 0.9, fee_terms_id = 1, beneficiary_version = 1
         where id = ${id}`;
      const row = await findPayoutById(test.database, id);
      if (row === undefined) throw new Error('The payout does not exist.');
      return row;
    };
    const [settled, failed] = [await unheld(), await unheld()];
    await move(settled, 'sent', 'settled');
    await move(failed, 'failed');
    await expect(post(settle(settled))).rejects.toThrow(mismatch);
    const release = leg('held', 'available', 'USD', amount(failed.sourceMinor));
    await expect(post(entryOf(failed, 'release', release))).rejects.toThrow(mismatch);
  });
});

describe.each(['api', 'operator', 'worker'] as const)('the %s role can fund', (role) => {
  const fund = async (mode: 'test' | 'live', postings: readonly Posting[]) => {
    const { account } = await createTestAccount(test.database, { mode, funds: { EUR: 100n } });
    const owned = { mode, accountId: account.id, payoutId: null } as const;
    await postEntries(connectedAs(role), [{ ...owned, entry: { kind: 'fund', postings } }]);
    return listBalances(test.database, account.id);
  };

  it('a test account', async () => {
    expect(await fund('test', leg('funding', 'available', 'EUR', 5n))).toMatchObject([
      { availableMinor: 105n },
    ]);
  });

  it('no live account, and cannot take money from any', async () => {
    const more = leg('funding', 'available', 'EUR', 5n);
    await expect(fund('live', more)).rejects.toMatchObject(refused);
    const less = leg('available', 'funding', 'EUR', 5n);
    await expect(fund('test', less)).rejects.toMatchObject(refused);
    const wrongAccount = leg('fx_position', 'available', 'EUR', 5n);
    await expect(fund('test', wrongAccount)).rejects.toMatchObject(refused);
  });
});

/** The error for lists of different lengths or with indexes that do not start at 1. */
const unevenLists = /the lists of entries and transfers/;

/** Calls post_entries with text, bypassing the code that would build correct lists. */
async function postLists(role: string, changes: Readonly<Record<string, string | null>>) {
  const { account } = await createTestAccount(test.database);
  const lists = {
    payouts: '{null}',
    entryKinds: '{fund}',
    modes: '{test}',
    owners: `{${account.id}}`,
    entries: '{1,1}',
    sources: '{funding,funding}',
    targets: '{available,available}',
    currencies: '{EUR,EUR}',
    amounts: '{5,6}',
    actions: null,
    reverses: null,
    ...changes,
  };
  return connectedAs(role)`
    select post_entries(${lists.payouts}::text::text[], ${lists.entryKinds}::text::text[],
      ${lists.modes}::text::text[], ${lists.owners}::text::text[], ${lists.entries}::text::int[],
      ${lists.sources}::text::text[], ${lists.targets}::text::text[],
      ${lists.currencies}::text::text[], ${lists.amounts}::text::bigint[],
      ${lists.actions}::text::text[], ${lists.reverses}::text::bigint[])`;
}

describe('the lists of post_entries must start at 1 and have matching lengths:', () => {
  it('an entry cannot be checked as one and posted as another', async () => {
    const { account: live } = await createTestAccount(test.database, { mode: 'live' });
    const row = await accepted();
    await test.worker`update payouts set status = 'failed' where id = ${row.id}`;
    const receivedMinor = row.receiveMinor ?? 0n;
    const posted = postLists('worker', {
      payouts: `{null,${row.id}}`,
      entryKinds: '[0:1]={fund,late_payment}',
      modes: '{live,test}',
      owners: `{${live.id},${row.accountId}}`,
      entries: '{1,2}',
      sources: '{funding,suspense}',
      targets: '{available,rail_settlement}',
      amounts: `{100000000,${receivedMinor}}`,
    });
    await expect(posted).rejects.toThrow(unevenLists);
    expect(await listBalances(test.database, live.id)).toContainEqual(
      expect.objectContaining({ currency: 'EUR', availableMinor: 1_000_000n }),
    );
  });

  it('the API cannot move anything but test money', async () => {
    const moved = postLists('api', {
      entryKinds: '{{fund}}',
      modes: '{live}',
      sources: '{losses,losses}',
      targets: '{rail_settlement,rail_settlement}',
    });
    await expect(moved).rejects.toThrow(unevenLists);
  });

  it.each([
    { payouts: '[0:0]={null}' },
    { payouts: '{null,null}' },
    { payouts: '{}' },
    { payouts: null },
    { entryKinds: '{{fund}}' },
    { entryKinds: '{null}' },
    { entryKinds: null },
    { entries: '[0:1]={1,1}' },
    { entries: '{{1},{1}}' },
    { entries: '{1}' },
    { entries: '{0,0}' },
    { entries: '{2,2}' },
    { entries: '{null,null}' },
    { entries: null },
    { modes: '[2:2]={test}' },
    { modes: '{test,test}' },
    { modes: null },
    { owners: '{null,null}' },
    { owners: '{{acc_1}}' },
    { sources: '{{funding,funding}}' },
    { sources: '{funding}' },
    { targets: '[0:1]={available,available}' },
    { targets: null },
    { currencies: '{EUR}' },
    { currencies: null },
    { amounts: '[0:1]={5,6}' },
    { amounts: '{5,6,5,6}' },
    { actions: '{null,null}', reverses: '{null,null}' },
    { actions: '[0:0]={null}', reverses: '{null}' },
    { actions: '{null}', reverses: '{{null}}' },
    { actions: '{null}' },
    { reverses: '{null}' },
  ])('refused: %j', async (changes) => {
    await expect(postLists('api', changes)).rejects.toThrow(unevenLists);
  });

  it('a transfer without a currency is refused, not left out', async () => {
    const posted = postLists('api', { currencies: '{EUR,null}' });
    await expect(posted).rejects.toThrow(/null value in column "currency"/);
  });

  it('empty lists post nothing', async () => {
    await postLists('api', {});
    const ofEntries = ['payouts', 'entryKinds', 'modes', 'owners'];
    const ofTransfers = ['entries', 'sources', 'targets', 'currencies', 'amounts'];
    const none = [...ofEntries, ...ofTransfers].map((name) => [name, '{}']);
    await postLists('api', Object.fromEntries(none));
  });
});

it.each(['api', 'operator'])('the %s role cannot post an entry of a payout', async (role) => {
  const row = await accepted();
  await test.worker`update payouts set status = 'failed' where id = ${row.id}`;
  const postings = leg('held', 'available', 'USD', row.sourceMinor ?? 0n);
  const posted = postEntries(connectedAs(role), [entryOf(row, 'release', postings)]);
  await expect(posted).rejects.toMatchObject(refused);
});

it('a login has the password that was set last', async () => {
  const [first, second] = ['first', 'second'].map((password) =>
    loginUrls(test.url, () => password),
  );
  if (first === undefined || second === undefined) throw new Error('Two were expected.');
  const canLogIn = async (url: string) => {
    const database = connect(url);
    try {
      return await database`select 1 as one`.then(
        () => true,
        () => false,
      );
    } finally {
      await database.end({ timeout: 5 });
    }
  };
  await allowLogins(test.database, { operator: first.operator });
  expect(await canLogIn(first.operator)).toBe(true);
  await allowLogins(test.database, { operator: second.operator });
  expect([await canLogIn(first.operator), await canLogIn(second.operator)]).toEqual([false, true]);
  await allowLogins(test.database, test.urls);
});
