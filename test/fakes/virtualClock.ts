import { vi } from 'vitest';
import { connectDatabase, type Database, exactlyOne } from '../../src/db/client.js';
import { createTestDatabase, storeReferenceRates, type TestDatabase } from '../servers/database.js';

/**
 * A database whose clock stands still until a test moves it, together with this process's clock.
 *
 * PostgreSQL resolves `now()` by the search path, so a function of that name in a schema before
 * `pg_catalog` replaces the server's clock in every statement and trigger of the service, whatever
 * the columns are called. Column defaults are bound when a table is created, so they are rebound.
 * `Date` moves along, so that all clocks that the code under test compares show the same time.
 * Only time is faked: days pass in one statement.
 */
export type VirtualTime = TestDatabase & {
  readonly advance: (byMs: number) => Promise<void>;
  /**
   * Moves the clock some days ahead, stores rates for that day, and closes the statements of the days
   * before, so that events of one test do not affect the next.
   */
  readonly beginAnew: () => Promise<void>;
  /** Restores the process's real clock and drops the database. */
  readonly drop: () => Promise<void>;
};

/** Noon is far from midnight, so a test that waits an hour stays within one day. */
const noonMs = 12 * 60 * 60 * 1000;
const dayMs = 24 * 60 * 60 * 1000;

export async function createVirtualTime(): Promise<VirtualTime> {
  const test = await createTestDatabase();
  await test.database.unsafe(schema);
  const [{ name }] = await test.database<[{ name: string }]>`select current_database() as name`;
  await test.database.unsafe(
    `alter database ${name} set search_path = virtual, pg_catalog, public;
     alter database ${name} set synchronous_commit = off`,
  );
  // Database settings only apply to connections opened afterwards.
  await Promise.all([test.database, test.worker].map((open) => open.end({ timeout: 5 })));
  const [database, worker] = [connect(test.url), connect(test.urls.worker)];
  const startMs = Math.floor(Date.now() / dayMs) * dayMs + noonMs;
  const goTo = async (toMs: number) => {
    vi.setSystemTime(toMs);
    await database`update virtual.clock set at = ${new Date(toMs)}`;
  };
  await goTo(startMs);
  await checkTime(database, startMs);
  return {
    ...test,
    database,
    worker,
    advance: (byMs) => goTo(Date.now() + byMs),
    beginAnew: async () => {
      await goTo(Math.floor(Date.now() / dayMs) * dayMs + 3 * dayMs + noonMs);
      await storeReferenceRates(database);
      await database`
        insert into statements (rail, statement_date)
        select 'sandbox', day::date
          from generate_series(coalesce((select max(statement_date) + 1 from statements),
                                        now()::date - 30), now()::date - 1, '1 day') day
        on conflict do nothing`;
    },
    drop: async () => {
      vi.useRealTimers();
      await Promise.all([database, worker].map((open) => open.end({ timeout: 5 })));
      await test.drop();
    },
  };
}

/** Plans are cached: these tables stay small, and planning would be half of all the work. */
function connect(url: string): Database {
  const options = { poolSize: 4, applicationName: 'test' };
  return connectDatabase({ url: `${url}?plan_cache_mode=auto`, ...options });
}

/** Verifies that the virtual clock is in use: otherwise tests of time would pass without any time passing. */
async function checkTime(database: Database, expectedMs: number): Promise<void> {
  const [row] = await database<{ now: Date; bound: number }[]>`
    select now() as now,
           (select count(*)::int from pg_proc
             where pronamespace = 'public'::regnamespace
               and array_to_string(proconfig, ',') like '%search_path=pg_catalog%')
           + (select count(*)::int from pg_attrdef
             where pg_get_expr(adbin, adrelid) like '%now()%'
               and pg_get_expr(adbin, adrelid) like '%pg_catalog%') as bound`;
  const { now, bound } = exactlyOne(row);
  if (now.getTime() !== expectedMs || bound > 0) {
    throw new Error(
      `The database clock is at ${now.toISOString()}, and ${bound} objects still use the real clock.`,
    );
  }
}

const schema = `
  create schema virtual;
  create table virtual.clock (at timestamptz not null);
  insert into virtual.clock values (pg_catalog.now());
  create function virtual.now() returns timestamptz language sql stable
    as 'select at from virtual.clock';
  create function virtual.clock_timestamp() returns timestamptz language sql stable
    as 'select at from virtual.clock';
  grant usage on schema virtual to public;
  grant select on virtual.clock to public;
  do $$
  declare
    found record;
  begin
    for found in
      select d.adrelid::regclass as name, a.attname as col, pg_get_expr(d.adbin, d.adrelid) as expr
        from pg_attrdef d join pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum
       where pg_get_expr(d.adbin, d.adrelid) ~ '(now|clock_timestamp)\\(\\)'
    loop
      execute format('alter table %s alter column %I set default %s', found.name, found.col,
        regexp_replace(found.expr, '(pg_catalog\\.)?(now|clock_timestamp)\\(\\)',
                       'virtual.\\2()', 'g'));
    end loop;
    -- Functions that name their own search path would pass the clock by.
    for found in
      select oid::regprocedure as name from pg_proc
       where pronamespace = 'public'::regnamespace and proconfig::text like '%search_path%'
    loop
      execute format('alter function %s set search_path = virtual, pg_catalog, public, pg_temp',
                     found.name);
    end loop;
  end $$`;
