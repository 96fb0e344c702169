import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { setTimeout } from 'node:timers/promises';
import { type Database, hasSqlState, type Sql, transaction } from './client.js';

const folder = new URL('./migrations/', import.meta.url);

/** Any number will do, as long as every process that migrates takes the same. */
const advisoryLock = 7_203_154_881;

/**
 * A statement that waits for a table's lock holds up all that come after it. Half a second fails no
 * request, since each waits for 1.5 s and more. Requests then have half a second, for two minutes in all.
 */
const lockTimeoutMs = 500;
const pauseMs = 500;
const mostAttempts = 120;

/** A file that begins so is one statement, repeated until it changes no row, a transaction each. */
const inSteps = /^-- In steps\b/;
/** A hundred million rows, a thousand at a time. */
const mostSteps = 100_000;

type Migration = { readonly name: string; readonly text: string; readonly checksum: string };

/**
 * Brings the schema to the newest migration and returns the names that were applied. Each
 * file is one transaction; an advisory lock lets any number of processes start at once; a
 * file that was changed after it was applied is an error, because migrations only go forward.
 * Requests continue meanwhile: see "Change the schema" in CONTRIBUTING.md.
 */
export async function migrate(database: Database, from = folder): Promise<readonly string[]> {
  const migrations = await readMigrations(from);
  await patiently(database, async (sql) => {
    await sql`create table if not exists migrations (
      name text primary key, checksum text not null, applied_at timestamptz not null default now())`;
    // A newer build may have applied more; one that has others in place of ours is of another schema.
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

/** A transaction of a migration, which gives way to requests that hold what it needs. */
async function patiently<T>(database: Database, work: (sql: Sql) => Promise<T>): Promise<T> {
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
    const outcome = await patiently(database, (sql) => apply(sql, migration));
    if (outcome !== 'step') return outcome === 'applied';
    // Half of the time is the requests' own.
    await setTimeout(performance.now() - startedMs);
  }
  throw new Error(`${migration.name} still finds rows to change after ${mostSteps} steps.`);
}

/** Whether every migration of this build is applied: what readiness asks. */
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
  // Of several statements, or one that changes no rows by its kind, there is no count.
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
