import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Client } from '@temporalio/client';
import { freePort } from '../../sandbox/stack/ports.js';
import { startPostgres } from '../../sandbox/stack/postgres.js';
import { type Part, sendSignal, startProcess } from '../../sandbox/stack/process.js';
import { startTemporalDevServer } from '../../sandbox/stack/temporal.js';
import { findTemporalCli } from '../../sandbox/stack/temporalBinary.js';
import { connectDatabase, type Database } from '../../src/db/client.js';
import { migrate } from '../../src/db/migrate.js';
import { enrollAdmin } from '../../src/db/operators.js';
import { allowLogins, type DatabaseRole, loginUrls } from '../../src/db/roles.js';
import { connectTemporal } from '../../src/temporal/client.js';
import { readJournal } from '../assertions/bankJournal.js';
import { type ConnectionBalancer, startConnectionBalancer } from '../fakes/connectionBalancer.js';
import { type RailProxy, startRailProxy } from '../fakes/railProxy.js';
import { masterKey } from '../fixtures/keyring.js';
import { finderOptions } from './finders.js';
import { forgetOnPowerCut, onServer } from './onServer.js';
import { freeServerPort, startTemporalServer } from './temporalServer.js';

const names = ['postgres', 'temporal', 'sandbox-bank', 'api', 'worker', 'batch-worker'] as const;
/** The parts in start order: each row depends on the rows before it, but not on its own members. */
const rows = [
  ['postgres', 'temporal', 'sandbox-bank'],
  ['api', 'worker', 'batch-worker'],
] as const;
export type PartName = (typeof names)[number];

const callbackSecret = 'a-callback-secret-of-the-tests';

/** The parts of which several replicas may run. */
export type ReplicaName = 'temporal' | 'api' | 'worker' | 'batch-worker';

/** Corridor as the processes of `dist/`. A test may stop and restart each of them. */
export type Processes = {
  readonly apiUrl: string;
  /** Where PostgreSQL, Temporal and the bank keep their files. */
  readonly directory: string;
  readonly database: Database;
  /** The database URL with the owner's login. */
  readonly ownerUrl: string;
  /** The secret that the bank signs its callbacks with. */
  readonly callbackSecret: string;
  readonly temporal: Client;
  /** The proxy that the worker uses as the bank's address. */
  readonly rail: RailProxy;
  /** Every line that our own processes have logged. */
  readonly lines: readonly string[];
  /** The environment for an operator's command line. */
  readonly operatorEnv: Readonly<Record<string, string>>;
  /** Starts a part on the same port and data as before. Does nothing if the part is running. */
  readonly start: (name: PartName) => Promise<void>;
  readonly startAll: () => Promise<void>;
  /**
   * Starts one more process of a kind, from this build unless another release is given. An API gets a
   * separate port. The caller must stop the process.
   */
  readonly startReplica: (name: ReplicaName, release?: Release) => Promise<Part>;
  /** The process ID of each running part. A part that exited by itself is missing. */
  readonly pids: () => Readonly<Partial<Record<PartName, number>>>;
  /** Sends a signal to a part's process: SIGSTOP freezes it, SIGCONT resumes it. */
  readonly signal: (name: PartName, signal: 'SIGSTOP' | 'SIGCONT') => void;
  /** Stops a part gracefully. */
  readonly stop: (name: PartName) => Promise<void>;
  /** Sends SIGKILL; resolves when the process is gone. */
  readonly crash: (name: PartName) => Promise<void>;
  /** The keys of the transfers that the bank has really made, in order. */
  readonly transfers: () => Promise<readonly string[]>;
  /** Stops everything and removes the data. */
  readonly remove: () => Promise<void>;
};

/** What a release changes compared with this build. */
export type Release = {
  /** The release's build folder, used instead of `dist/`. */
  readonly dist?: string;
  readonly env?: Readonly<Record<string, string>>;
};

export type ProcessesOptions = {
  /** Environment for our own processes. Each process reads it when it starts. */
  readonly env?: Readonly<Record<string, string>>;
  /** Returns the URL by which our processes reach the database. */
  readonly lineTo?: (databaseUrl: string) => Promise<string>;
  /** The address that the bank sends callbacks to; by default the API itself. */
  readonly callbacksTo?: string;
  /** Runs Temporal as in production, on the same PostgreSQL server. */
  readonly isTemporalOnPostgres?: boolean;
  /** Additional PostgreSQL settings, each as `name=value`. */
  readonly postgresSettings?: (directory: string) => readonly string[];
};

/** Starts every part on free ports and fresh data. */
export async function startProcesses({
  env = {},
  lineTo = (url) => Promise.resolve(url),
  callbacksTo,
  isTemporalOnPostgres = false,
  postgresSettings = () => [],
}: ProcessesOptions = {}): Promise<Processes> {
  const directory = await mkdtemp(join(tmpdir(), 'corridor-parts-'));
  const temporals = isTemporalOnPostgres ? await startConnectionBalancer() : undefined;
  const ports = await choosePorts(temporals?.port);
  const rail = await startRailProxy(`http://127.0.0.1:${ports.bank}`);
  const lines: string[] = [];
  let databaseHost = '';
  const startOurs: StartOurs = (name, settings, args, release = {}) =>
    startNode(
      name,
      { ...settings, ...reachedAt(databaseHost, settings), ...env, ...release.env },
      (line) => lines.push(line),
      args,
      release.dist,
    );
  const apiUrl = `http://127.0.0.1:${ports.api}`;
  const bank = { railUrl: rail.url, callbacksTo: callbacksTo ?? apiUrl };
  const settings = postgresSettings(directory);
  const chosen = { ...bank, settings, temporals };
  const starters = startersOf(directory, ports, chosen, startOurs);
  const running = new Map<PartName, Part>();
  const temporal = connectTemporal({
    TEMPORAL_ADDRESS: `127.0.0.1:${ports.temporal}`,
    TEMPORAL_NAMESPACE: 'default',
  });

  const starting = new Map<PartName, Promise<void>>();
  const startOne = async (name: PartName) => {
    if (running.has(name)) return;
    const part = await starters[name]();
    running.set(name, part);
    // A part that exited by itself can be started again.
    void part.exited.then(() => running.delete(name));
  };
  // Concurrent tests may start the same part: they share one start.
  const start = (name: PartName) => {
    const started = starting.get(name) ?? startOne(name).finally(() => starting.delete(name));
    starting.set(name, started);
    return started;
  };
  const end = async (name: PartName, how: (part: Part) => Promise<unknown>) => {
    const part = running.get(name);
    if (part === undefined) throw new Error(`${name} is not running.`);
    await how(part);
  };
  /** Waits for every start even if one fails, so that a later stop knows all running parts. */
  const startRow = async (row: readonly PartName[]) => {
    const started = row.map(start);
    await Promise.allSettled(started);
    await Promise.all(started);
  };
  const startAll = async () => {
    for (const row of rows) await startRow(row);
  };
  const remove = async () => {
    for (const name of names.toReversed()) await running.get(name)?.stop();
    await Promise.all([rail.close(), temporal.connection.close()]);
    temporals?.close();
    await rm(directory, { recursive: true, force: true });
  };
  try {
    if (isTemporalOnPostgres) await start('postgres');
    await startRow(rows[0]);
    await onServer(starters.databaseUrl(), forgetOnPowerCut);
    databaseHost = new URL(await lineTo(starters.databaseUrl())).host;
    const database = connectDatabase({
      url: starters.databaseUrl(),
      poolSize: 5,
      applicationName: 'test',
    });
    await migrate(database);
    await allowLogins(database, starters.urls());
    const operatorKey = await enrollAdmin(database, 'grace', 'a test');
    await startAll();
    return {
      apiUrl,
      directory,
      database,
      ownerUrl: starters.databaseUrl(),
      callbackSecret,
      temporal,
      rail,
      lines,
      operatorEnv: {
        DATABASE_URL: starters.urls().operator,
        TEMPORAL_ADDRESS: `127.0.0.1:${ports.temporal}`,
        CORRIDOR_OPERATOR_KEY: operatorKey,
      },
      start,
      startAll,
      startReplica: (name, release) => starters[name](release, '0'),
      pids: () => Object.fromEntries([...running].map(([name, { pid }]) => [name, pid])),
      signal: (name, signal) => sendSignal(running.get(name)?.pid ?? 0, signal),
      stop: (name) => end(name, (part) => part.stop()),
      crash: (name) =>
        end(name, (part) => {
          sendSignal(part.pid, 'SIGKILL');
          return part.exited;
        }),
      transfers: async () => {
        const lines = await readJournal(join(directory, 'bank-journal.jsonl'));
        return lines.flatMap((line) => (line.type === 'transfer' ? [line.key ?? ''] : []));
      },
      remove: async () => {
        await database.end({ timeout: 5 });
        await remove();
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** Replaces the host of a process's database URL, if the process has one. */
function reachedAt(host: string, { DATABASE_URL: url }: Readonly<Record<string, string>>) {
  return url === undefined ? {} : { DATABASE_URL: Object.assign(new URL(url), { host }).href };
}

/**
 * Our own processes by name, each with its program, arguments and names of environment variables, for
 * comparison with the deployment files.
 */
export function processesOf() {
  const found: Record<string, { command: readonly string[]; env: string[] }> = {};
  const ports = { api: 0, bank: 0, postgres: 0, temporal: 0, temporalUi: 0 };
  const bank = { railUrl: 'http://127.0.0.1', callbacksTo: 'http://127.0.0.1' };
  for (const name of ['sandbox-bank', ...rows[1]] as const) {
    const note: StartOurs = (started, env, args = []) => {
      const program = `dist/${folderOf(started)}/main.js`;
      const command = ['node', ...flagsOf(started, args, './dist'), program, ...args];
      found[name] = { command, env: Object.keys(env) };
      return Promise.reject(new Error('The command is only recorded, not run.'));
    };
    const parts = startersOf('', ports, bank, note, 'postgres://owner@127.0.0.1/corridor');
    parts[name]().catch(() => undefined);
  }
  return found;
}

/** Starts a process of `dist/` by its name. */
type StartOurs = (
  name: string,
  env: Readonly<Record<string, string>>,
  args?: readonly string[],
  release?: Release,
) => Promise<Part>;

type Ports = Awaited<ReturnType<typeof choosePorts>>;

async function choosePorts(temporal?: number) {
  return {
    api: await freePort(),
    bank: await freePort(),
    postgres: await freePort(),
    temporal: temporal ?? (await freePort()),
    temporalUi: await freePort(),
  };
}

/** Starts each part as `corridor start` does, except that the worker reaches the bank through a proxy. */
function startersOf(
  directory: string,
  ports: Ports,
  {
    railUrl,
    callbacksTo,
    settings = [],
    temporals,
  }: {
    readonly railUrl: string;
    readonly callbacksTo: string;
    readonly settings?: readonly string[];
    /** The single address in front of the Temporal servers that run on PostgreSQL. */
    readonly temporals?: ConnectionBalancer | undefined;
  },
  startOurs: StartOurs,
  databaseUrlAtFirst = '',
) {
  const bankToken = 'a-bank-token-of-the-tests';
  let databaseUrl = databaseUrlAtFirst;
  const urls = () => loginUrls(databaseUrl, () => 'a-password-of-the-tests');
  const connections = (role: DatabaseRole) => ({
    DATABASE_URL: urls()[role],
    TEMPORAL_ADDRESS: `127.0.0.1:${ports.temporal}`,
    MASTER_KEY: masterKey,
    WEBHOOKS_ALLOW_INSECURE: 'true',
  });
  const workerSettings = () => ({
    ...connections('worker'),
    SANDBOX_BANK_URL: railUrl,
    SANDBOX_BANK_TOKEN: bankToken,
    RATE_SOURCE: 'reference',
  });
  return {
    databaseUrl: () => databaseUrl,
    urls,
    postgres: async (): Promise<Part> => {
      const part = await startPostgres({
        dataDir: join(directory, 'postgres'),
        port: ports.postgres,
        database: 'corridor',
        settings,
        onLog: () => undefined,
      });
      databaseUrl = part.databaseUrl;
      return part;
    },
    temporal: async () => {
      const { temporal: port, temporalUi: uiPort } = ports;
      if (temporals !== undefined) return startMember(temporals, directory, databaseUrl);
      return startTemporalDevServer({
        binary: await findTemporalCli(finderOptions('TEMPORAL_CLI_PATH')),
        ...{ port, uiPort },
        dbFile: join(directory, 'temporal.sqlite'),
        namespace: 'default',
        onLog: () => undefined,
      });
    },
    'sandbox-bank': () =>
      startOurs('sandbox-bank', {
        BANK_PORT: String(ports.bank),
        BANK_JOURNAL: join(directory, 'bank-journal.jsonl'),
        BANK_API_TOKEN: bankToken,
        BANK_CALLBACK_URL: `${callbacksTo}/rails/sandbox/callbacks`,
        BANK_CALLBACK_SECRET: callbackSecret,
      }),
    api: (release?: Release, port = String(ports.api)) => {
      const settings = {
        ...connections('api'),
        API_PORT: port,
        SANDBOX_BANK_CALLBACK_SECRET: callbackSecret,
        FINGERPRINT_SECRET: 'a-fingerprint-secret-of-the-tests',
        // Tests send as fast as they can; the rate limit of a key has its own tests.
        RATE_LIMIT_PER_SECOND: '10000',
        RATE_LIMIT_BURST: '10000',
        IN_FLIGHT_LIMIT: '10000',
        ITEM_LIMIT_PER_SECOND: '99999',
      };
      return startOurs('api', settings, [], release);
    },
    worker: (release?: Release) => startOurs('worker', workerSettings(), [], release),
    'batch-worker': (release?: Release) =>
      startOurs('worker', workerSettings(), ['--lane', 'batch'], release),
  };
}

/** Starts one more server of the Temporal cluster, on a separate port. */
async function startMember(temporals: ConnectionBalancer, directory: string, databaseUrl: string) {
  const port = await freeServerPort();
  const at = join(directory, 'temporal');
  const part = await startTemporalServer({ directory: at, port, databaseUrl });
  temporals.add(port);
  void part.exited.then(() => temporals.remove(port));
  return part;
}

/** The workflow worker preloads a module; the batch worker runs no workflows and does not. */
function flagsOf(name: string, args: readonly string[], dist: string): readonly string[] {
  const hasWorkflows = name === 'worker' && args.length === 0;
  const preloaded = `--import=${dist}/src/worker/withoutCallStacks.js`;
  return [...(hasWorkflows ? [preloaded] : []), '--enable-source-maps'];
}

/** The folder of a process's main program. */
const folderOf = (name: string) => (name === 'sandbox-bank' ? 'sandbox/bank' : `src/${name}`);

function startNode(
  name: string,
  env: Readonly<Record<string, string>>,
  onLog: (line: string) => void,
  args: readonly string[] = [],
  dist = fileURLToPath(new URL('../../dist', import.meta.url)),
): Promise<Part> {
  return startProcess({
    name,
    command: process.execPath,
    args: [...flagsOf(name, args, dist), join(dist, folderOf(name), 'main.js'), ...args],
    env: { ...process.env, ...env },
    ipc: true,
    ready: { line: (line) => /"(?:ready|listening)":"(http[^"]+)"/.exec(line)?.[1] },
    // The worker waits up to 30 s for Temporal to accept its search attributes; the rest is a margin
    // for a busy machine.
    readyTimeoutMs: 90_000,
    stopTimeoutMs: 30_000,
    onLog,
  });
}
