import postgres, { type Fragment } from 'postgres';
import { observe, raise } from '../metrics.js';
import { socketsTo } from './socket.js';

/** A connection pool or an open transaction: every function of this folder takes either. */
export type Sql = postgres.ISql<{ bigint: bigint }>;
export type Database = postgres.Sql<{ bigint: bigint }>;

/** The one row that a statement always returns. */
export function exactlyOne<T>(row: T | undefined): T {
  if (row === undefined) throw new Error('The statement returned no row.');
  return row;
}

const allColumns = (sql: Sql): Fragment => sql`*`;

/** Finds an object in a table by its id, whichever account's it is. */
export function byId<T extends object>(table: string, columns = allColumns) {
  return async (sql: Sql, id: string): Promise<T | undefined> => {
    const [row] = await sql<T[]>`select ${columns(sql)} from ${sql(table)} where id = ${id}`;
    return row;
  };
}

/** Finds an account's objects in a table by their ids. */
export function ownedIn<T extends object>(table: string, columns = allColumns) {
  return (sql: Sql, accountId: string, ids: readonly string[]): Promise<readonly T[]> =>
    sql<T[]>`select ${columns(sql)} from ${sql(table)}
              where id = any (${ids}) and account_id = ${accountId}`;
}

/** Finds an account's object by its id, by what finds many of them. */
export function oneOf<T>(
  findMany: (sql: Sql, accountId: string, ids: readonly string[]) => Promise<readonly T[]>,
) {
  return async (sql: Sql, accountId: string, id: string): Promise<T | undefined> =>
    (await findMany(sql, accountId, [id]))[0];
}

export type DatabaseOptions = {
  readonly url: string;
  /** Largest number of connections this process holds. */
  readonly poolSize: number;
  /** How long a statement waits for a lock; 3 s by default. */
  readonly lockTimeoutMs?: number;
  /** How long a statement may take; 7 s unless it is one that many wait behind. */
  readonly statementTimeoutMs?: number;
  /** Shown in pg_stat_activity, so that an operator sees which process holds a lock. */
  readonly applicationName: string;
};

/** Connections of one process. Integers of 8 bytes arrive as bigint, numeric as exact text. */
export function connectDatabase(options: DatabaseOptions): Database {
  const settings = {
    max: options.poolSize,
    types: { bigint: postgres.BigInt, arrays },
    fetch_types: false,
    socket: socketsTo(),
    transform: { column: { from: postgres.toCamel }, undefined: null },
    // A restarted server is found again within half a second instead of after 20 s.
    backoff: (attempt: number) => Math.min(0.05 * 2 ** attempt, 0.5),
    connect_timeout: 5,
    onnotice: () => undefined,
    connection: {
      application_name: options.applicationName,
      // A statement of ours takes milliseconds; what takes longer than an activity's own
      // limit has lost its caller. For a lock it waits three seconds by default, the API's patience.
      statement_timeout: options.statementTimeoutMs ?? 7_000,
      lock_timeout: options.lockTimeoutMs ?? 3_000,
      idle_in_transaction_session_timeout: 10_000,
      // A process that was frozen between two messages of one statement is not idle to the server,
      // and would hold its locks until it wakes. The longest transaction of ours takes some 20 s.
      transaction_timeout: 60_000,
      // Plans that were cached for an empty table are a thousand times slower on a full one.
      plan_cache_mode: 'force_custom_plan',
      // On a disk without a head 500 look-ups cost less than a pass over 100,000 rows, which at
      // the default of 4 is what tables get that have just grown.
      random_page_cost: 1.1,
      // To compile a statement takes longer than any of ours.
      jit: 'off',
      timezone: 'UTC',
    },
  };
  raise('database_connections_limit', options.poolSize);
  return postgres(options.url, settings);
}

/** Serialization failure and deadlock (SQLSTATE): the transaction did nothing and may run again. */
const retryable = new Set(['40001', '40P01']);

/** Locks are taken in one order everywhere, so a second deadlock in a row is already rare. */
const maximumAttempts = 4;

/** The driver's own codes, and the system's (E…), of a connection that is gone. */
const lostCodes = /^(CONNECTION_(CLOSED|ENDED|DESTROYED)|CONNECT_TIMEOUT|E[A-Z]+)$/;

/** The SQLSTATE of what the database refuses, or the code of the driver or the system. */
function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

/** What is to be done once a transaction is committed. */
const effects = new WeakMap<Sql, (() => void)[]>();

/** Has something counted that a transaction does, once it is true. */
export function afterCommit(sql: Sql, effect: () => void): void {
  effects.get(sql)?.push(effect);
}

/** One transaction, run again after a deadlock. `work` must have no effect outside of it. */
export async function transaction<T>(
  database: Database,
  work: (sql: Sql) => Promise<T>,
): Promise<T> {
  raise('database_transactions', 1);
  try {
    return await repeated(database, work);
  } finally {
    raise('database_transactions', -1);
  }
}

async function repeated<T>(database: Database, work: (sql: Sql) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const committed: (() => void)[] = [];
    const askedMs = performance.now();
    try {
      // The box keeps postgres.js from resolving an array result element by element.
      const { result } = await database.begin(async (sql) => {
        observe('database_wait_seconds', {}, (performance.now() - askedMs) / 1000);
        effects.set(sql, committed);
        try {
          return { result: await work(sql) };
        } catch (error) {
          if (!lostCodes.test(codeOf(error))) throw error;
          // postgres.js 3.4.9 would send a rollback down the closed connection, and throw where
          // it cannot be caught: every restart of the database would end every process of ours
          // (porsager/postgres#1208). The end of the connection rejects the transaction anyway.
          return new Promise<never>(() => undefined);
        }
      });
      for (const effect of committed) effect();
      return result;
    } catch (error) {
      if (!retryable.has(codeOf(error)) || attempt >= maximumAttempts) throw error;
    }
  }
}

/** A transaction that reads so much that it may take longer than others: until it is abandoned. */
export function longTransaction<T>(
  database: Database,
  limitMs: number,
  work: (sql: Sql) => Promise<T>,
): Promise<T> {
  return transaction(database, async (sql) => {
    await sql`
      select set_config('statement_timeout', ${String(limitMs)}, true),
             set_config('transaction_timeout', '0', true)`;
    return work(sql);
  });
}

/** Below this many rows the two statements more would cost what they save. */
const bulkRows = 50;

/**
 * A transaction that writes many rows. Foreign keys are checked at its end, by plans that are
 * kept: planning each check anew, as is best for our own statements, would take half of the time.
 */
export function bulkTransaction<T>(
  database: Database,
  rowCount: number,
  work: (sql: Sql) => Promise<T>,
): Promise<T> {
  if (rowCount < bulkRows) return transaction(database, work);
  return transaction(database, async (sql) => {
    await sql`set constraints all deferred`;
    // Pricing 10,000 items between two statements may take longer than a connection may idle.
    await sql`set local idle_in_transaction_session_timeout = '60s'`;
    const result = await work(sql);
    await sql`set local plan_cache_mode = auto`;
    return result;
  });
}

/**
 * How a database says that it is away, full or busy, so that the same request may well succeed in
 * a moment, in SQLSTATEs: 08 the connection; 53 no more memory, disk or connections; 57P0 shut
 * down, crashed or starting up; 57014 a statement that took too long; 25P03 and 25P04 a
 * transaction that stood still, because its process was frozen; 25006 a standby in the primary's
 * place; and a lock (55P03) or conflict (40) that no repeat has resolved. Then the driver's own
 * words, and the system's. 25P02 is not among them: it only follows another error.
 */
const outageCodes = new RegExp(
  '^(08...|53...|57P0.|57014|25P0[34]|25006|55P03|40001|40P01|CONNECTION_(CLOSED|ENDED|DESTROYED)|' +
    'CONNECT_TIMEOUT|ECONN(REFUSED|RESET|ABORTED)|EPIPE|ETIMEDOUT|E(HOST|NET)(UNREACH|DOWN)|' +
    'ENOTFOUND|EAI_AGAIN|EADDRNOTAVAIL|EMFILE|ENFILE)$',
);

/** Whether an error says that the database could not answer, rather than what it answered. */
export function isOutage(error: unknown): boolean {
  return outageCodes.test(codeOf(error));
}

/** Recognizes a violated constraint or a lock time-out by its SQLSTATE. */
export function hasSqlState(error: unknown, code: string): boolean {
  return error instanceof postgres.PostgresError && error.code === code;
}

/** Whether a database function raised this error to refuse the request; its message says why. */
export const isRaisedByFunction = (error: unknown): error is Error => hasSqlState(error, 'P0001');

/**
 * Numbers for a `bigint[]` parameter. postgres.js takes the type of an array's first bigint
 * for the type of the parameter, so the numbers go as text and the server reads them.
 */
export function bigints(values: readonly (bigint | null)[]): (string | null)[] {
  return values.map((value) => value?.toString() ?? null);
}

/** What PostgreSQL calls the types of the arrays that our statements take or return (pg_type). */
const arrayTypes = { int4: 1007, text: 1009, int8: 1016, float8: 1022 };

/**
 * How arrays go and come. postgres.js would ask each new connection for the types of arrays, and
 * 3.4.9 does not handle that a connection is lost before it answers: the process ends. An array
 * of another type is refused by the server (22P02); integration/arrays.test.ts looks for columns.
 */
export const arrays = {
  to: arrayTypes.text,
  from: Object.values(arrayTypes),
  serialize: literalOf,
  parse: elementsOf,
};

type Element = string | number | bigint | boolean | null | undefined;

/** What an element escapes. Most contain neither, and testing is several times faster than replacing. */
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

/** The elements as text, of an array of one dimension: quoted where they must be, or as they are. */
function elementsOf(literal: string): readonly (string | null)[] {
  return [...literal.matchAll(/"((?:[^"\\]|\\.)*)"|[^{},]+/gs)].map(([plain, inner]) => {
    if (inner !== undefined) return inner.replaceAll(/\\(.)/gs, '$1');
    return plain === 'NULL' ? null : plain;
  });
}

type Value = string | number | bigint | boolean | object | null | undefined;
type Row = { readonly [property: string]: Value };

/**
 * Rows as a table `t` that a statement reads from: an array a column, so that the statement is the
 * same for any number of rows. The arrays go as text, and the server reads their elements:
 * postgres.js would take the type of the first one for that of all. The names and types of the
 * columns follow as in `create table`; each is a property of every row.
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

/**
 * A condition on a value that is asked for, or none. So each combination of filters is a
 * statement of its own, whose plan can be kept: one for all of them would fit none.
 */
export function when<T>(
  sql: Sql,
  value: T | null | undefined,
  condition: (value: T) => Fragment,
): Fragment {
  return value === null || value === undefined ? sql`true` : condition(value);
}
