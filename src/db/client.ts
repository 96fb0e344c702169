import postgres, { type Fragment } from 'postgres';
import { observe, raise } from '../metrics.js';
import { socketsTo } from './socket.js';

/** A connection pool or an open transaction. Every function in this folder accepts either. */
export type Sql = postgres.ISql<{ bigint: bigint }>;
export type Database = postgres.Sql<{ bigint: bigint }>;

/** Returns the row of a statement that always returns one; throws if there is none. */
export function exactlyOne<T>(row: T | undefined): T {
  if (row === undefined) throw new Error('The statement returned no row.');
  return row;
}

/** Runs a statement and returns its first row, or undefined if it returns none. */
export async function firstRow<T>(rows: PromiseLike<readonly T[]>): Promise<T | undefined> {
  return (await rows)[0];
}

/** Runs a statement that always returns a row and returns it; throws if there is none. */
export const onlyRow = async <T>(rows: PromiseLike<readonly T[]>) =>
  exactlyOne(await firstRow(rows));

/** Runs a statement and returns the IDs in its rows. */
export const idsIn = async (rows: PromiseLike<readonly { readonly id: string }[]>) =>
  (await rows).map(({ id }) => id);

const allColumns = (sql: Sql): Fragment => sql`*`;

/** Creates a function that finds a row of a table by its ID, in any account. */
export function byId<T extends object>(table: string, columns = allColumns) {
  return (sql: Sql, id: string) =>
    firstRow(sql<T[]>`select ${columns(sql)} from ${sql(table)} where id = ${id}`);
}

/** Creates a function that finds an account's rows in a table by their IDs. */
export function ownedIn<T extends object>(table: string, columns = allColumns) {
  return (sql: Sql, accountId: string, ids: readonly string[]): Promise<readonly T[]> =>
    sql<T[]>`select ${columns(sql)} from ${sql(table)}
              where id = any (${ids}) and account_id = ${accountId}`;
}

/** Turns a function that finds many of an account's rows into one that finds a single row. */
export function oneOf<T>(
  findMany: (sql: Sql, accountId: string, ids: readonly string[]) => Promise<readonly T[]>,
) {
  return (sql: Sql, accountId: string, id: string) => firstRow(findMany(sql, accountId, [id]));
}

export type DatabaseOptions = {
  readonly url: string;
  /** Maximum number of connections this process opens. */
  readonly poolSize: number;
  /** Maximum time a statement waits for a lock; 3 s by default. */
  readonly lockTimeoutMs?: number;
  /** Statement timeout; 7 s by default. Shorter where many requests queue behind one statement. */
  readonly statementTimeoutMs?: number;
  /** Keeps the plan of each statement: for processes whose statements read a few rows by indexes. */
  readonly keepsPlans?: boolean;
  /** Shown in pg_stat_activity, so that operators can see which process holds a lock. */
  readonly applicationName: string;
};

/**
 * Plans every statement anew. A plan kept from when a table was empty is a thousand times slower once the
 * table is full.
 */
const freshPlans = {
  plan_cache_mode: 'force_custom_plan',
  enable_seqscan: 'on',
  enable_hashjoin: 'on',
  enable_mergejoin: 'on',
};

/**
 * Plans every statement once per connection, because planning one that reads a few rows takes longer than
 * running it. Without scans and joins of whole tables, a plan that was made while a table was small suits the
 * full one as well (integration/kept-plans.test.ts).
 */
const keptPlans = {
  plan_cache_mode: 'force_generic_plan',
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
};

/** Creates the connection pool of a process. Returns int8 as bigint and numeric as exact text. */
export function connectDatabase(options: DatabaseOptions): Database {
  const settings = {
    max: options.poolSize,
    types: { bigint: postgres.BigInt, arrays },
    fetch_types: false,
    socket: socketsTo(),
    transform: { column: { from: postgres.toCamel }, undefined: null },
    // Reconnect within half a second of a server restart; the driver's default may take 20 s.
    backoff: (attempt: number) => Math.min(0.05 * 2 ** attempt, 0.5),
    connect_timeout: 5,
    onnotice: () => undefined,
    connection: {
      application_name: options.applicationName,
      // Our statements take milliseconds. One that outlasts its activity's timeout has lost its
      // caller. The default lock timeout of 3 s is the longest that an API request should wait.
      statement_timeout: options.statementTimeoutMs ?? 7_000,
      lock_timeout: options.lockTimeoutMs ?? 3_000,
      idle_in_transaction_session_timeout: 10_000,
      // The server does not consider a process idle that was frozen between two messages of one
      // statement, so it would keep its locks until it resumes. Our longest transaction takes about 20 s.
      transaction_timeout: 60_000,
      ...(options.keepsPlans ? keptPlans : freshPlans),
      // On an SSD, 500 index look-ups cost less than scanning 100,000 rows. With the default of 4
      // the planner chooses the scan for tables that have just grown.
      random_page_cost: 1.1,
      // JIT compilation takes longer than any of our statements.
      jit: 'off',
      timezone: 'UTC',
    },
  };
  raise('database_connections_limit', options.poolSize);
  return postgres(options.url, settings);
}

/** SQLSTATEs of a serialization failure and a deadlock. The transaction was rolled back: safe to retry. */
const retryableCodes = new Set(['40001', '40P01']);

/** All code takes locks in the same order, so even a second deadlock in a row is rare. */
const maximumAttempts = 4;

/**
 * Whether a migration has changed the columns of a statement that the connection had prepared. If others were sent
 * with it, the driver first reports the one after it, as 25P02.
 */
function isStalePlan(error: unknown): boolean {
  if (!(error instanceof postgres.PostgresError)) return false;
  return error.routine === 'RevalidateCachedQuery' || error.code === '25P02';
}

/** Each failure drops one stale statement of one connection: more than a transaction has on a pool of 16. */
const maximumStalePlans = 100;

/** Codes of a lost connection, from the driver and from the operating system (E…). */
const lostCodes = /^(CONNECTION_(CLOSED|ENDED|DESTROYED)|CONNECT_TIMEOUT|E[A-Z]+)$/;

/** Returns an error's SQLSTATE, or the code of the driver or the operating system; '' if it has none. */
function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

/** Callbacks to run after each open transaction commits. */
const effects = new WeakMap<Sql, (() => void)[]>();

/** Runs `effect` after the transaction commits, so that metrics count only what really happened. */
export function afterCommit(sql: Sql, effect: () => void): void {
  effects.get(sql)?.push(effect);
}

/**
 * Runs a transaction and retries it after a deadlock, or if a migration made its plans stale. `work` must have no
 * side effects outside it.
 */
export async function transaction<T>(
  database: Database,
  work: (sql: Sql) => Promise<T>,
): Promise<T> {
  raise('database_transactions', 1);
  try {
    return await withRetries(database, work);
  } finally {
    raise('database_transactions', -1);
  }
}

const never = () => new Promise<never>(() => undefined);

async function withRetries<T>(database: Database, work: (sql: Sql) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const committed: (() => void)[] = [];
    const requestedMs = performance.now();
    let isOver = false;
    try {
      // Wrapped in an object, because postgres.js would resolve an array result element by element.
      const { result } = await database.begin(async (session) => {
        observe('database_wait_seconds', {}, (performance.now() - requestedMs) / 1000);
        const sql = new Proxy(session, {
          apply: (send, self, args) => (isOver ? never() : Reflect.apply(send, self, args)),
        });
        effects.set(sql, committed);
        try {
          const result = await work(sql);
          if (!isOver) return { result };
        } catch (error) {
          if (!isOver && !lostCodes.test(codeOf(error))) throw error;
        }
        // The connection is lost, which rejects the transaction anyway. postgres.js 3.4.9 would still send
        // the rest of it: on the closed connection it throws where nothing can catch it, so a database
        // restart would crash all our processes (porsager/postgres#1208), and on a connection that it has
        // opened since, the statements and the commit would join another transaction.
        return never();
      });
      for (const effect of committed) effect();
      return result;
    } catch (error) {
      const isRetryable = retryableCodes.has(codeOf(error));
      const most = isStalePlan(error) ? maximumStalePlans : isRetryable ? maximumAttempts : 1;
      if (attempt >= most) throw error;
    } finally {
      isOver = true;
    }
  }
}

/** Changes settings of the database for the rest of a transaction. */
const setLocally = async (sql: Sql, settings: Readonly<Record<string, string>>) => sql`
  select set_config(name, value, true)
    from unnest(${Object.keys(settings)}::text[], ${Object.values(settings)}::text[]) t (name, value)`;

/** Runs a transaction that reads a lot: `limitMs` is its statement timeout, without a transaction timeout. */
export function longTransaction<T>(
  database: Database,
  limitMs: number,
  work: (sql: Sql) => Promise<T>,
): Promise<T> {
  return transaction(database, async (sql) => {
    const limits = { statement_timeout: String(limitMs), transaction_timeout: '0' };
    await setLocally(sql, { ...freshPlans, ...limits });
    return work(sql);
  });
}

/** With fewer rows, the extra statements of a bulk transaction cost more than they save. */
const bulkRows = 50;

/**
 * Runs a transaction that writes many rows. Foreign keys are checked at its end, with kept plans:
 * planning each check anew, as is best for our own statements, would take half of the time.
 */
export function bulkTransaction<T>(
  database: Database,
  rowCount: number,
  work: (sql: Sql) => Promise<T>,
): Promise<T> {
  if (rowCount < bulkRows) return transaction(database, work);
  return transaction(database, async (sql) => {
    await sql`set constraints all deferred`;
    // Pricing 10,000 items between two statements may exceed the default idle timeout.
    await setLocally(sql, { ...freshPlans, idle_in_transaction_session_timeout: '60s' });
    const result = await work(sql);
    await sql`set local plan_cache_mode = auto`;
    return result;
  });
}

/**
 * Codes of a database that is unreachable, full or busy, so that the same request may succeed soon.
 * SQLSTATEs: 08 connection failure; 53 out of memory, disk or connections; 57P0 shut down, crashed
 * or starting up; 57014 statement timeout; 25P03 and 25P04 transaction timed out because its process
 * was frozen; 25006 connected to a standby instead of the primary; 55P03 lock timeout and 40
 * conflict that retries did not resolve. Then codes of the driver and of the operating system.
 * 25P02 is not included, because it only follows another error.
 */
const outageCodes = new RegExp(
  '^(08...|53...|57P0.|57014|25P0[34]|25006|55P03|40001|40P01|CONNECTION_(CLOSED|ENDED|DESTROYED)|' +
    'CONNECT_TIMEOUT|ECONN(REFUSED|RESET|ABORTED)|EPIPE|ETIMEDOUT|E(HOST|NET)(UNREACH|DOWN)|' +
    'ENOTFOUND|EAI_AGAIN|EADDRNOTAVAIL|EMFILE|ENFILE)$',
);

/** Whether an error means that the database was unavailable, and not that it rejected the statement. */
export function isOutage(error: unknown): boolean {
  return outageCodes.test(codeOf(error));
}

/** Whether an error has this SQLSTATE, such as a violated constraint's or a lock timeout's. */
export function hasSqlState(error: unknown, code: string): boolean {
  return error instanceof postgres.PostgresError && error.code === code;
}

/** Whether a database function raised this error to refuse the request. Its message is the reason. */
export const isRaisedByFunction = (error: unknown): error is Error => hasSqlState(error, 'P0001');

/**
 * Converts numbers for a `bigint[]` parameter. postgres.js would type the whole parameter after its
 * first bigint, so the numbers are sent as text and the server parses them.
 */
export function bigints(values: readonly (bigint | null)[]): (string | null)[] {
  return values.map((value) => value?.toString() ?? null);
}

/** PostgreSQL's type OIDs (pg_type) of the arrays that our statements accept or return. */
const arrayTypes = { int4: 1007, text: 1009, int8: 1016, float8: 1022 };

/**
 * Serializes and parses arrays. By default postgres.js queries array types on each new connection, and
 * 3.4.9 crashes the process if the connection is lost before the response. The server rejects arrays
 * of other types (22P02). integration/arrays.test.ts checks that no column has such a type.
 */
export const arrays = {
  to: arrayTypes.text,
  from: Object.values(arrayTypes),
  serialize: literalOf,
  parse: elementsOf,
};

type Element = string | number | bigint | boolean | null | undefined;

/** Characters to escape. Most elements have none, and testing is several times faster than replacing. */
const escaped = /[\\"]/;

function literalOf(value: string | readonly Element[]): string {
  if (typeof value === 'string') return value;
  const elements = value.map((element) =>
    element === null || element === undefined ? 'null' : quoted(String(element)),
  );
  return `{${elements.join()}}`;
}

function quoted(text: string): string {
  return `"${escaped.test(text) ? text.replaceAll(/[\\"]/g, '\\$&') : text}"`;
}

/** Parses the literal of a one-dimensional array, with quoted or unquoted elements, into text. */
function elementsOf(literal: string): readonly (string | null)[] {
  return [...literal.matchAll(/"((?:[^"\\]|\\.)*)"|[^{},]+/gs)].map(([plain, inner]) => {
    if (inner !== undefined) return inner.replaceAll(/\\(.)/gs, '$1');
    return plain === 'NULL' ? null : plain;
  });
}

type Value = string | number | bigint | boolean | object | null | undefined;
type Row = { readonly [property: string]: Value };

/**
 * Passes rows to a statement as a table `t`: one array per column, so that the statement's text is the
 * same for any number of rows. Elements are sent as text and parsed by the server, because postgres.js
 * would type an array after its first element. The template that follows lists column names and types
 * as in `create table`. Every row must have each of them as a property.
 */
export function unnest(sql: Sql, rows: readonly Row[]) {
  return ([columns = '']: TemplateStringsArray): Fragment => {
    const names: string[] = [];
    const arrays = columns.split(',').map((column, index) => {
      const [name = '', type = ''] = column.trim().split(' ');
      names.push(name);
      const property = postgres.toCamel(name);
      const texts = rows.map((row) => textOf(row, property));
      return sql`${sql.unsafe(index === 0 ? '' : ',')} ${texts}::text[]::${sql.unsafe(type)}[]`;
    });
    return sql`unnest(${arrays}) as t (${sql(names)})`;
  };
}

function textOf(row: Row, property: string): string | null {
  if (!(property in row)) throw new Error(`A row has no ${property}.`);
  const { [property]: value } = row;
  if (value === null || value === undefined) return null;
  if (value instanceof Date) return value.toISOString();
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** Maximum number of rows that a list for operators prints: more than a person reads. */
export const mostListed = 1_000;

/** Maximum number of rows that a list reads. One more than it prints, which shows that there are more. */
export const mostRead = mostListed + 1;

/**
 * Returns a condition on an optional filter value, or `true` if there is no value. Each combination of
 * filters is thus a separate statement with its own plan. One plan for all of them would suit none.
 */
export function when<T>(
  sql: Sql,
  value: T | null | undefined,
  condition: (value: T) => Fragment,
): Fragment {
  return value === null || value === undefined ? sql`true` : condition(value);
}
