import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';
import { type Database, hasSqlState, type Sql, transaction } from './client.js';

// By way of the parent folder, where a bundled command finds it too.
const folder = new URL('../db/migrations/', import.meta.url);

/** An arbitrary number, but every process that migrates must use the same one. */
const advisoryLock = 7_203_154_881;

/**
 * A statement that waits for a table lock blocks all later ones. Half a second fails no request, since
 * requests wait at least 1.5 s for a lock. Between attempts, requests get half a second to proceed. The
 * attempts last for two minutes in all.
 */
const lockTimeoutMs = 500;
const pauseMs = 500;
const mostAttempts = 120;

/** Marks a file with one statement that is repeated, one transaction each, until it changes no row. */
const inSteps = /^-- In steps\b/;
/** Enough for a hundred million rows, a thousand at a time. */
const mostSteps = 100_000;

type Migration = { readonly name: string; readonly text: string; readonly checksum: string };

/**
 * Applies all pending migrations and returns their names. Each file is one transaction, except those in
 * steps. An advisory lock makes it safe for any number of processes to start at once. Throws if a file
 * was changed after it was applied, because migrations only go forward. Requests continue to be
 * served meanwhile: see "Change the schema" in CONTRIBUTING.md.
 */
export async function migrate(database: Database, from = folder): Promise<readonly string[]> {
  const migrations = await readMigrations(from);
  await withLockRetries(database, async (sql) => {
    await sql`create table if not exists migrations (
      name text primary key, checksum text not null, applied_at timestamptz not null default now())`;
    // A newer build may have applied more migrations. Different ones in place of ours mean that the
    // database has another schema.
    const [other] = await sql<{ name: string }[]>`
      select name from (select name, row_number() over (order by name) as place from migrations) m
       where name <> (${migrations.map(({ name }) => name)}::text[])[place] limit 1`;
    if (other) throw new Error(`This build does not know ${other.name}: recreate the database.`);
  });
  const applied: string[] = [];
  for (const migration of migrations) {
    if (await applyToEnd(database, migration)) applied.push(migration.name);
  }
  return applied;
}

/** Runs a migration's transaction, and retries it later if requests hold the locks that it needs. */
async function withLockRetries<T>(database: Database, work: (sql: Sql) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await transaction(database, async (sql) => {
        await sql`select set_config('lock_timeout', ${String(lockTimeoutMs)}, true),
            set_config('statement_timeout', '0', true), set_config('transaction_timeout', '0', true)`;
        await sql`select pg_advisory_xact_lock(${advisoryLock}::bigint)`;
        return work(sql);
      });
    } catch (error) {
      if (!hasSqlState(error, '55P03') || attempt === mostAttempts) throw error;
      await setTimeout(pauseMs);
    }
  }
}

async function applyToEnd(database: Database, migration: Migration): Promise<boolean> {
  for (let step = 0; step < mostSteps; step += 1) {
    const startedMs = performance.now();
    const outcome = await withLockRetries(database, (sql) => apply(sql, migration));
    if (outcome !== 'step') return outcome === 'applied';
    // Pause for as long as the step took, which leaves half of the time to requests.
    await setTimeout(performance.now() - startedMs);
  }
  throw new Error(`${migration.name} still finds rows to change after ${mostSteps} steps.`);
}

/** Whether every migration of this build is applied. Used by the readiness check. */
export async function isMigrated(sql: Sql): Promise<boolean> {
  const names = await namesIn(folder);
  const [row] = await sql<{ known: boolean }[]>`
    select to_regclass('migrations') is not null as known`;
  if (row?.known !== true) return false;
  const rows = await sql<{ name: string }[]>`select name from migrations`;
  return names.every((name) => rows.some((row) => row.name === name));
}

async function apply(sql: Sql, migration: Migration): Promise<'applied' | 'step' | 'known'> {
  const { name, text, checksum } = migration;
  const [found] = await sql<{ checksum: string }[]>`
    select checksum from migrations where name = ${name}`;
  if (found !== undefined) {
    if (found.checksum === checksum) return 'known';
    throw new Error(`Migration ${name} was changed after it was applied; add a new one instead.`);
  }
  // `count` is missing after several statements, and after one that cannot change rows.
  const { count } = await sql.unsafe(text);
  if (inSteps.test(text)) {
    if (!Number.isInteger(count)) throw new Error(`${name} is in steps: expected one update.`);
    if (count > 0) return 'step';
  }
  await sql`insert into migrations (name, checksum) values (${name}, ${checksum})`;
  return 'applied';
}

const namesIn = async (from: URL) =>
  (await readdir(from)).filter((name) => name.endsWith('.sql')).sort();

async function readMigrations(from: URL): Promise<readonly Migration[]> {
  const names = await namesIn(from);
  return Promise.all(
    names.map(async (name) => {
      const text = await readFile(new URL(name, from), 'utf8');
      return { name, text, checksum: createHash('sha256').update(text).digest('hex') };
    }),
  );
}
