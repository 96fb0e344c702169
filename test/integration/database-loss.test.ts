import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  connectDatabase,
  type Database,
  isOutage,
  type Sql,
  transaction,
} from '../../src/db/client.js';
import { eventually } from '../assertions/eventually.js';
import { type CutLine, openCutLine } from '../fakes/cutLine.js';
import { createTestDatabase, type TestDatabase } from '../servers/database.js';

/**
 * The loss of a database must cost the calls in flight and nothing else. The test process itself proves
 * that no process ends: an uncaught exception fails the run.
 */
describe('a transaction whose connection is lost', () => {
  let test: TestDatabase;
  let line: CutLine;
  let database: Database;

  beforeAll(async () => {
    test = await createTestDatabase();
    line = await openCutLine(test.url);
    database = connectDatabase({ url: line.url, poolSize: 1, applicationName: 'test' });
  });
  afterAll(async () => {
    await database?.end({ timeout: 5 });
    await line?.close();
    await test?.drop();
  });

  const losses: readonly (readonly [string, (statement: string) => Promise<void>])[] = [
    ['closed by the other side', async () => line.hangUp()],
    ['reset', async () => line.reset()],
    [
      'ended by an operator',
      async (statement) => {
        await test.database`
          select pg_terminate_backend(pid) from pg_stat_activity where query = ${statement}`;
      },
    ],
  ];
  it.each(losses)('fails as an outage, and the pool recovers: %s', async (how, lose) => {
    // The backend of a lost client keeps running, so each case uses a distinct statement.
    const statement = `select pg_sleep(5) /* ${how} */`;
    const lost = transaction(database, async (sql) => {
      // Two at once, as the accept transaction sends them.
      await Promise.all([sql.unsafe(statement), sql`select 1`]);
    }).catch((error: unknown) => error);
    await eventually('the statement in flight', 4_000, async () => {
      const sleeping = await test.database`
        select from pg_stat_activity where query = ${statement} and state = 'active'`;
      return sleeping.length > 0 ? true : undefined;
    });
    await lose(statement);
    expect(await lost).toSatisfy(isOutage);

    // postgres.js may report the lost connection a second time, on the connection opened next.
    await eventually('a transaction succeeds', 2_000, () =>
      transaction(database, (sql) => sql`select 1`).then(
        () => true,
        (error: unknown) => {
          expect(error).toSatisfy(isOutage);
          return undefined;
        },
      ),
    );
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => transaction(database, (sql) => sql`select 1 as one`)),
    );
    expect(answers.flat()).toEqual(Array.from({ length: 5 }, () => ({ one: 1 })));
  });
});

describe('a transaction whose connection is lost between two statements', () => {
  let test: TestDatabase;
  let database: Database;

  beforeAll(async () => {
    test = await createTestDatabase();
    await test.database`create table written (by text)`;
    database = connectDatabase({ url: test.url, poolSize: 1, applicationName: 'test' });
  });
  afterAll(async () => {
    await database?.end({ timeout: 5 });
    await test?.drop();
  });

  /** Loses the connection of a transaction, which goes on when `resume` is called. */
  async function loseConnection(): Promise<{ readonly resume: () => void }> {
    const { promise: resumed, resolve: resume } = Promise.withResolvers<void>();
    const lost = transaction(database, async (sql) => {
      const [{ pid } = { pid: 0 }] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid`;
      await test.database`select pg_terminate_backend(${pid})`;
      await resumed;
      await sql`insert into written values ('lost')`;
    });
    await expect(lost).rejects.toSatisfy(isOutage);
    return { resume };
  }

  it('writes and commits nothing in the transaction that has its connection next', async () => {
    const { resume } = await loseConnection();
    const next = transaction(database, async (sql) => {
      await sql`insert into written values ('next')`;
      resume();
      await delay(100);
      await sql`select 1`;
      throw new Error('refused');
    });
    await expect(next).rejects.toThrow('refused');
    expect(await test.database`select by from written`).toEqual([]);
  });

  it('sends nothing on the closed connection, where that would end the process', async () => {
    const { resume } = await loseConnection();
    resume();
    await delay(100);
    expect(await transaction(database, (sql) => sql`select by from written`)).toEqual([]);
  });
});

describe('a session that the server ended within a transaction', () => {
  let test: TestDatabase;
  let database: Database;

  beforeAll(async () => {
    test = await createTestDatabase();
    database = connectDatabase({ url: test.url, poolSize: 1, applicationName: 'test' });
  });
  afterAll(async () => {
    await database?.end({ timeout: 5 });
    await test?.drop();
  });

  /** Blocks this process, as a stop signal would. */
  const freeze = (forMs: number) =>
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, forMs);

  it('because the process was frozen, is reported as an outage', async () => {
    const frozen = transaction(database, async (sql) => {
      await sql`set local idle_in_transaction_session_timeout = '100ms'`;
      freeze(1_000);
      await sql`select 1`;
    }).catch((error: unknown) => error);
    const errors = [await frozen];
    // The driver reports it a second time, on the connection opened next.
    await eventually('a transaction succeeds', 5_000, async () => {
      const next = await transaction(database, (sql) => sql`select 1`).catch(
        (error: unknown) => error,
      );
      if (!(next instanceof Error)) return true;
      errors.push(next);
      return undefined;
    });
    expect(errors).toContainEqual(expect.objectContaining({ code: '25P03' }));
    for (const error of errors) expect(error).toSatisfy(isOutage);
  });
});

/** More messages than a server sends until a new connection has answered its first statements. */
const messagesOfAnOpening = 40;

describe('a connection that is being opened', () => {
  let test: TestDatabase;
  let line: CutLine;
  let database: Database;

  beforeAll(async () => {
    test = await createTestDatabase();
    line = await openCutLine(test.url);
  });
  beforeEach(() => {
    database = connectDatabase({ url: line.url, poolSize: 1, applicationName: 'test' });
  });
  afterEach(() => database?.end({ timeout: 5 }));
  afterAll(async () => {
    await line?.close();
    await test?.drop();
  });

  const ask = (): Promise<unknown> =>
    transaction(database, (sql) => sql`select 1`).then(
      () => 'answered',
      (error: unknown) => error,
    );

  it.each(['closed', 'reset'] as const)(
    'can be %s after any message, and the pool recovers',
    async (how) => {
      for (let messages = 1; messages <= messagesOfAnOpening; messages += 1) {
        line.cutNextAfter(messages, how);
        const first = await ask();
        if (first !== 'answered') expect(first, `after ${messages} messages`).toSatisfy(isOutage);
        line.reset();
        await eventually(`an answer after ${messages} messages`, 10_000, async () => {
          const next = await ask();
          if (next === 'answered') return true;
          expect(next, `again, after ${messages} messages`).toSatisfy(isOutage);
          return undefined;
        });
        line.reset();
      }
    },
  );

  it('to a server that is starting up fails at once, without repeated attempts', async () => {
    expect(await ask()).toBe('answered');
    const lost = database`select pg_sleep(5) /* lost */`.catch((error: unknown) => error);
    await eventually('the statement in flight', 4_000, async () => {
      const rows = await test.database`
        select from pg_stat_activity where query like '%/* lost */' and state = 'active'
           and pid <> pg_backend_pid()`;
      return rows.length > 0 ? true : undefined;
    });
    line.refuseNew(true);
    line.hangUp();
    expect(await lost).toSatisfy(isOutage);
    const before = line.count();
    for (let time = 1; time <= 5; time += 1) expect(await ask()).toSatisfy(isOutage);
    expect(line.count() - before).toBeLessThanOrEqual(5);

    line.refuseNew(false);
    await eventually('an answer', 10_000, async () => (await ask()) === 'answered' || undefined);
  });
});

describe('a transaction after a migration that changed what its statements return', () => {
  let test: TestDatabase;
  let database: Database;
  beforeAll(async () => {
    test = await createTestDatabase();
    const options = { url: test.url, poolSize: 1, applicationName: 'test', keepsPlans: true };
    database = connectDatabase(options);
  });
  afterAll(async () => {
    await database?.end({ timeout: 5 });
    await test?.drop();
  });

  // More statements than a transaction is repeated for a deadlock.
  const numbers = [1, 2, 3, 4, 5, 6];
  const send = (sql: Sql, n: number) => sql`
    select *, 1 as ${sql(`c${n}`)} from grown where a is distinct from ${n}`;
  it.each<readonly [string, (sql: Sql) => Promise<unknown>]>([
    [
      'one after another',
      async (sql) => {
        for (const n of numbers) await send(sql, n);
      },
    ],
    ['at once', (sql) => Promise.all(numbers.map((n) => send(sql, n)))],
  ])('goes on: %s', async (_name, work) => {
    await test.database`create table grown (a int)`;
    await transaction(database, work);
    await test.database`alter table grown add column b int`;
    await transaction(database, work);
    await test.database`drop table grown`;
  });
});
