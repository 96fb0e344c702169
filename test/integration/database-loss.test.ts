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
    // A backend whose client is gone sleeps on: each case has a statement of its own.
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

    // postgres.js may tell of the end of a connection a second time, on the one made next.
    await eventually('a transaction', 2_000, () =>
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
