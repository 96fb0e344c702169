import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { type Database, type Sql, transaction } from './client.js';

const folder = new URL('./migrations/', import.meta.url);

/** Any number will do, as long as every process that migrates takes the same. */
const advisoryLock = 7_203_154_881;

type Migration = { readonly name: string; readonly text: string; readonly checksum: string };

/**
 * Brings the schema to the newest migration and returns the names that were applied. Each
 * file is one transaction; an advisory lock lets any number of processes start at once; a
 * file that was changed after it was applied is an error, because migrations only go forward.
 */
export async function migrate(database: Database): Promise<readonly string[]> {
  const migrations = await readMigrations();
  await transaction(database, async (sql) => {
    await sql`select pg_advisory_xact_lock(${advisoryLock}::bigint)`;
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
    const isNew = await transaction(database, (sql) => apply(sql, migration));
    if (isNew) applied.push(migration.name);
  }
  return applied;
}

/** Whether every migration of this build is applied: what readiness asks. */
export async function isMigrated(sql: Sql): Promise<boolean> {
  const migrations = await readMigrations();
  const [row] = await sql<{ known: boolean }[]>`
    select to_regclass('migrations') is not null as known`;
  if (row?.known !== true) return false;
  const rows = await sql<{ name: string }[]>`select name from migrations`;
  return migrations.every(({ name }) => rows.some((row) => row.name === name));
}

async function apply(sql: Sql, { name, text, checksum }: Migration): Promise<boolean> {
  // Waiting for another process that migrates may take longer than a statement usually may.
  await sql`select set_config('lock_timeout', '60s', true), set_config('statement_timeout', '0', true),
      set_config('transaction_timeout', '0', true)`;
  await sql`select pg_advisory_xact_lock(${advisoryLock}::bigint)`;
  const [found] = await sql<{ checksum: string }[]>`
    select checksum from migrations where name = ${name}`;
  if (found !== undefined) {
    if (found.checksum === checksum) return false;
    throw new Error(`Migration ${name} was changed after it was applied; add a new one instead.`);
  }
  await sql.unsafe(text);
  await sql`insert into migrations (name, checksum) values (${name}, ${checksum})`;
  return true;
}

async function readMigrations(): Promise<readonly Migration[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).sort();
  return Promise.all(
    names.map(async (name) => {
      const text = await readFile(new URL(name, folder), 'utf8');
      return { name, text, checksum: createHash('sha256').update(text).digest('hex') };
    }),
  );
}
