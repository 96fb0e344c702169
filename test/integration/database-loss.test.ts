import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectDatabase, type Database, isOutage, transaction } from '../../src/db/client.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { eventually } from '../support/eventually.js';

/**
 * A database that goes away must cost the calls in flight and nothing else. That no process
 * ends is proved by the test process itself: an exception nobody caught fails the run.
 */
describe('a transaction whose connection is lost', () => {
  let test: TestDatabase;
  let line: Line;
  let database: Database;

  beforeAll(async () => {
    test = await createTestDatabase();
    line = await openLine(test.url);
    database = connectDatabase({ url: line.url, poolSize: 1, applicationName: 'test' });
  });
  afterAll(async () => {
    await database?.end({ timeout: 5 });
    await line?.close();
    await test?.drop();
  });

  const losses: readonly (readonly [string, () => Promise<void>])[] = [
    ['closed by the other side', async () => line.hangUp()],
    ['reset', async () => line.reset()],
    [
      'ended by an operator',
      async () => {
        await test.database`select pg_terminate_backend(pid) from pg_stat_activity
          where query like ${'%pg_sleep%'} and pid <> pg_backend_pid()`;
      },
    ],
  ];
  it.each(losses)('fails as an outage and leaves the pool as it was: %s', async (_how, lose) => {
    const lost = transaction(database, async (sql) => {
      await sql`create table never (id int)`;
      // Two at once, as the accept transaction sends them.
      await Promise.all([sql`select pg_sleep(20)`, sql`select 1`]);
    }).catch((error: unknown) => error);
    await eventually('the statement in flight', 5_000, async () => {
      const sleeping = await test.database`
        select from pg_stat_activity where query = 'select pg_sleep(20)' and state = 'active'`;
      return sleeping.length > 0 ? true : undefined;
    });
    await lose();
    expect(isOutage(await lost)).toBe(true);

    // The pool has one connection, so this waits for the same one to be made again.
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => transaction(database, (sql) => sql`select 1 as one`)),
    );
    expect(answers.flat()).toEqual(Array.from({ length: 5 }, () => ({ one: 1 })));
    expect(await test.database`select from pg_tables where tablename = 'never'`).toHaveLength(0);
  });
});

type Line = {
  readonly url: string;
  /** Ends every connection as a server does that goes away in silence. */
  readonly hangUp: () => void;
  readonly reset: () => void;
  readonly close: () => Promise<void>;
};

/** A line to the database that can be cut. */
async function openLine(databaseUrl: string): Promise<Line> {
  const target = new URL(databaseUrl);
  const clients = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(Number.parseInt(target.port, 10), target.hostname);
    clients.add(client);
    client.pipe(upstream).pipe(client);
    // A line that is cut ends both of its sides, with an error or without.
    for (const [one, other] of [[client, upstream] as const, [upstream, client] as const]) {
      one.on('error', () => other.destroy());
      one.on('close', () => {
        clients.delete(client);
        other.destroy();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const url = new URL(databaseUrl);
  url.port = String(typeof address === 'object' && address !== null ? address.port : 0);
  return {
    url: url.href,
    hangUp: () => {
      for (const client of clients) client.end();
    },
    reset: () => {
      for (const client of clients) client.resetAndDestroy();
    },
    close: async () => {
      for (const client of clients) client.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
