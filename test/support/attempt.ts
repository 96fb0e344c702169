import { MockActivityEnvironment } from '@temporalio/testing';
import { DefaultLogger } from '@temporalio/worker';
import type { Database } from '../../src/db/client.js';

// What a test has an activity throw is no news for whoever reads the tests' output.
const environment = new MockActivityEnvironment({}, { logger: new DefaultLogger('ERROR') });

/** One attempt of an activity, as a worker makes it. */
export function attempt<T>(activity: () => Promise<T>): Promise<T> {
  return environment.run(activity);
}

/** A place where an attempt stands still, like a process that is suspended, until it is opened. */
export class Hold {
  readonly reached: Promise<'held'>;
  #arrive: () => void = () => undefined;
  #open: () => void = () => undefined;
  readonly #opened: Promise<void>;

  constructor() {
    this.reached = new Promise((resolve) => {
      this.#arrive = () => resolve('held');
    });
    this.#opened = new Promise((resolve) => {
      this.#open = resolve;
    });
  }

  readonly wait = (): Promise<void> => {
    this.#arrive();
    return this.#opened;
  };

  open(): void {
    this.#open();
  }
}

/**
 * The database of a process that falls asleep after so many of its statements and transactions:
 * what it has read is old when it goes on, and what it has written is there.
 */
export function drowsy(database: Database, statements: number, hold: Hold): Database {
  let left = statements;
  const finished = async () => {
    left -= 1;
    if (left === 0) await hold.wait();
  };
  return new Proxy(database, {
    apply: (target, self, args) => {
      const query: unknown = Reflect.apply(target, self, args);
      // Only what is awaited by itself is a statement; the rest are parts of one.
      if (query instanceof Promise) {
        const run = query.then.bind(query);
        Reflect.defineProperty(query, 'then', {
          value: (...then: Parameters<typeof run>) =>
            run(async (rows: unknown) => {
              await finished();
              return rows;
            }).then(...then),
        });
      }
      return query;
    },
    get: (target, name) => {
      if (name !== 'begin') return Reflect.get(target, name);
      return async (...args: Parameters<Database['begin']>) => {
        const result = await target.begin(...args);
        await finished();
        return result;
      };
    },
  });
}
