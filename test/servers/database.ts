import { randomBytes } from 'node:crypto';
import { inject } from 'vitest';
import { type Account, insertAccount, type Mode } from '../../src/db/accounts.js';
import { createApiKey, createKey, hashOfKey, insertApiKey } from '../../src/db/apiKeys.js';
import { connectDatabase, type Database, type Sql, transaction } from '../../src/db/client.js';
import { postEntries } from '../../src/db/ledger.js';
import { storeRates } from '../../src/db/rates.js';
import { allowLogins, type DatabaseUrls, databaseRoles, loginUrls } from '../../src/db/roles.js';
import { fundEntry } from '../../src/domain/ledger.js';
import type { OperatorRole } from '../../src/domain/operator.js';
import type { Scope } from '../../src/domain/scope.js';
import { referenceSource } from '../../src/rates/reference.js';
import { eventually } from '../assertions/eventually.js';
import { onServer } from './onServer.js';

export type TestDatabase = {
  readonly url: string;
  /** Connected as the owner, who may do everything, for a test's preparations and checks. */
  readonly database: Database;
  /** Connected as the API and as a worker: code under test has the same privileges as in production. */
  readonly api: Database;
  readonly worker: Database;
  readonly urls: DatabaseUrls;
  /** Renames the database and leaves it for other test files to use. */
  readonly handOver: (to: string) => Promise<void>;
  readonly drop: () => Promise<void>;
};

/**
 * Creates a separate database with the newest schema and, by default, current rates, or a copy of
 * another database that already has both.
 */
export async function createTestDatabase({
  hasRates = true,
  copyOf = inject('postgresTemplate'),
} = {}): Promise<TestDatabase> {
  const server = inject('postgresUrl');
  const name = `test_${randomBytes(6).toString('hex')}`;
  // `wal_log` copies block by block through the WAL, which takes ten times as long for a large database.
  const strategy = copyOf === inject('postgresTemplate') ? 'wal_log' : 'file_copy';
  await onServer(server, async (admin) => {
    await admin.unsafe('set statement_timeout = 0; set transaction_timeout = 0');
    await admin.unsafe(`create database ${name} template ${copyOf} strategy ${strategy}`);
  });
  const url = new URL(server);
  url.pathname = `/${name}`;
  const pool = { poolSize: 10, applicationName: 'test' };
  const database = connectDatabase({ ...pool, url: url.href });
  const urls = loginUrls(url.href, () => randomBytes(12).toString('hex'));
  await allowLogins(database, urls);
  for (const [name, { role, key }] of operators) await addOperator(database, name, role, key);
  const connect = (login: string) => connectDatabase({ ...pool, url: login, keepsPlans: true });
  const [api, worker] = [connect(urls.api), connect(urls.worker)];
  if (hasRates) await storeReferenceRates(database);
  const roles = databaseRoles.map((role) => `${name}_${role}`).join(', ');
  const end = async (statement: string) => {
    await Promise.all([api, worker, database].map((open) => open.end({ timeout: 5 })));
    await onServer(server, async (admin) => {
      await admin.unsafe(statement);
      await admin.unsafe(`drop role ${roles}`);
    });
  };
  return {
    url: url.href,
    database,
    api,
    worker,
    urls,
    handOver: async (to) => {
      // Dropping the database also drops the roles' privileges in it; a renamed database keeps them.
      await database.unsafe(`drop owned by ${roles}`);
      await end(`alter database ${name} rename to ${to}`);
    },
    drop: () => end(`drop database ${name} with (force)`),
  };
}

/** Stores current rates, as of this process's clock. */
export async function storeReferenceRates(database: Database): Promise<void> {
  // Stored as if from a real provider, because some tests have live accounts.
  const provider = { ...referenceSource, isForTests: false };
  await storeRates(database, provider, await referenceSource.fetch());
}

/** The operators of every test database. */
const operators = new Map<string, { readonly role: OperatorRole; readonly key: string }>([
  ['grace', { role: 'admin', key: createKey('cop_') }],
  ['ada', { role: 'admin', key: createKey('cop_') }],
  ['barbara', { role: 'approve', key: createKey('cop_') }],
  ['edith', { role: 'approve', key: createKey('cop_') }],
  ['otto', { role: 'operate', key: createKey('cop_') }],
  ['vera', { role: 'view', key: createKey('cop_') }],
]);

/** The key of one of these operators, or an unknown key if there is no operator of that name. */
export function operatorKeyOf(name: string): string {
  return operators.get(name)?.key ?? createKey('cop_');
}

/** Adds an operator without writing to the audit log. A copied database already has the operators. */
async function addOperator(
  database: Database,
  name: string,
  role: OperatorRole,
  key: string,
): Promise<void> {
  await database`
    insert into operators (name, role, key_hash, last_four)
    values (${name}, ${role}, ${hashOfKey(key)}, ${key.slice(-4)})
    on conflict (name) do update set key_hash = excluded.key_hash, last_four = excluded.last_four`;
}

export type TestAccount = { readonly account: Account; readonly apiKey: string };

/** Adds an API key to an account, by default with all scopes, and returns it. */
export async function addApiKey(
  sql: Sql,
  accountId: string,
  { mode = 'test', ...scopes }: { readonly mode?: Mode; readonly scopes?: readonly Scope[] } = {},
): Promise<string> {
  const apiKey = createApiKey(mode);
  const row = { accountId, keyHash: hashOfKey(apiKey), lastFour: apiKey.slice(-4) };
  await insertApiKey(sql, { ...row, ...scopes });
  return apiKey;
}

/** Creates an account with an API key and, by default, 10,000.00 USD and 10,000.00 EUR. */
export async function createTestAccount(
  database: Database,
  options: {
    readonly mode?: Mode;
    readonly funds?: Readonly<Record<string, bigint>>;
    readonly apiVersion?: string;
  } = {},
): Promise<TestAccount> {
  const { mode = 'test', funds = { USD: 1_000_000n, EUR: 1_000_000n } } = options;
  const { apiVersion = '2026-06-01' } = options;
  return transaction(database, async (sql) => {
    const account = await insertAccount(sql, { mode, name: 'Test', apiVersion });
    const apiKey = await addApiKey(sql, account.id, { mode });
    await postEntries(
      sql,
      Object.entries(funds).map(([currency, amountMinor]) => ({
        entry: fundEntry(currency, amountMinor),
        mode,
        accountId: account.id,
        payoutId: null,
      })),
    );
    return { account, apiKey };
  });
}

/** Returns every currency whose postings do not sum to zero: none, if the ledger is correct. */
export async function unbalancedCurrencies(database: Database): Promise<readonly string[]> {
  const rows = await database<{ currency: string }[]>`
    select currency from ledger_postings group by currency having sum(amount_minor) <> 0`;
  return rows.map((row) => row.currency);
}

/** Changes rows with the triggers that protect them disabled, which no code of the service can do. */
export async function withoutTriggers(
  database: Database,
  work: (sql: Sql) => Promise<unknown>,
): Promise<void> {
  await transaction(database, async (sql) => {
    await sql`set local session_replication_role = replica`;
    await work(sql);
  });
}

/** Runs a transaction without timeouts, for tests that write or read very many rows. */
export function withoutTimeouts<T>(database: Database, work: (sql: Sql) => Promise<T>): Promise<T> {
  return transaction(database, async (sql) => {
    await sql`select set_config('statement_timeout', '0', true),
                     set_config('transaction_timeout', '0', true)`;
    return work(sql);
  });
}

/** Waits until one statement in this database, or a number of them, waits for a lock. */
export async function untilLockWaits(
  sql: Sql,
  what: string,
  limitMs: number,
  statements = 1,
): Promise<void> {
  await eventually(what, limitMs, async () => {
    const waiting = await sql`
      select from pg_stat_activity
       where datname = current_database() and wait_event_type = 'Lock'`;
    return waiting.count >= statements || undefined;
  });
}
