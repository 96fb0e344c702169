import { randomBytes, randomInt } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { choosePort } from '../../sandbox/stack/ports.js';
import { type Part, runCommand, startProcess } from '../../sandbox/stack/process.js';
import { findTemporalCli, findTemporalServer } from '../../sandbox/stack/temporalBinary.js';
import type { Database } from '../../src/db/client.js';
import { parseCompose } from '../integration/compose.js';
import { finderOptions } from './finders.js';
import { onServer } from './onServer.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const deployed = (name: string) => join(root, 'deploy/temporal', name);

/** create-namespace.sh waits for a healthy server for a minute by itself. */
const scriptLimitMs = 90_000;

type ServerOptions = {
  /** A folder for the configuration of every server of the cluster; its data is in PostgreSQL. */
  readonly directory: string;
  /** Where this server answers. Servers of one database are one cluster. */
  readonly port: number;
  /** Of the owner of the PostgreSQL that its databases are made in. */
  readonly databaseUrl: string;
};

/**
 * Starts Temporal as docker-compose.yml does, on PostgreSQL: the same command and configuration, the
 * same scripts for its schema and its namespace. Only addresses, ports and the number of history
 * shards are others.
 */
export async function startTemporalServer(options: ServerOptions): Promise<Part> {
  const { port } = options;
  const { services } = parseCompose(
    await readFile(join(root, 'docker-compose.yml'), 'utf8'),
  ).compose;
  const server = await findTemporalServer(finderOptions('TEMPORAL_SERVER_PATH'));
  const cli = await findTemporalCli(finderOptions('TEMPORAL_CLI_PATH'));
  const path = [dirname(server), dirname(cli), process.env['PATH']].join(delimiter);
  const files = await prepare(options.directory);
  const envOf = (name: string) => ({ ...process.env, ...services[name]?.environment, PATH: path });
  if (files.isNewCluster) {
    await onServer(options.databaseUrl, (admin) => createDatabases(admin, files.password));
    const { hostname: SQL_HOST, port: SQL_PORT } = new URL(options.databaseUrl);
    const at = { SQL_HOST, SQL_PORT, SQL_PASSWORD_FILE: files.passwordFile };
    await runScript('set-up-schema.sh', { ...envOf('temporal-schema'), ...at });
  }
  const { file, metricsPort } = await configure(options, files.passwordFile);
  const [, ...args] = services['temporal']?.command ?? [];
  const namespaceEnv = {
    ...envOf('temporal-namespace'),
    TEMPORAL_ADDRESS: `127.0.0.1:${port}`,
  };
  return startProcess({
    name: 'temporal',
    command: server,
    args: args.map((arg) => arg.replace('/etc/temporal/server.yaml', file)),
    env: { ...envOf('temporal'), TEMPORAL_BROADCAST_ADDRESS: '127.0.0.1' },
    ready: {
      probe: async () => {
        await runScript('create-namespace.sh', namespaceEnv);
        // Where Prometheus asks whether it is there.
        return (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).ok;
      },
    },
    readyTimeoutMs: scriptLimitMs,
    // As long as the container has.
    stopTimeoutMs: 60_000,
    onLog: () => undefined,
  });
}

/** Ports that were given out, to servers that may not listen yet. */
const given = new Set<number>();

/**
 * A free port that the server can use: in PostgreSQL it keeps its own ports as `smallint`, so one above
 * 32767, as the system would give it, ends it at its start.
 */
export async function freeServerPort(): Promise<number> {
  for (let taken = 0; ; ) {
    const port = randomInt(16_384, 32_768);
    if (given.has(port)) continue;
    given.add(port);
    try {
      return await choosePort(port, 'none');
    } catch (error) {
      taken += 1;
      // On a machine with a thousand listeners three in a row are taken once in four thousand times.
      if (taken === 3) throw error;
    }
  }
}

/** The password of the databases, which the first server of a cluster makes. */
async function prepare(directory: string) {
  const passwordFile = join(directory, 'password');
  const isNewCluster = !existsSync(passwordFile);
  if (isNewCluster) {
    await mkdir(directory, { recursive: true });
    await writeFile(passwordFile, randomBytes(18).toString('base64url'));
  }
  return { isNewCluster, passwordFile, password: await readFile(passwordFile, 'utf8') };
}

/** Writes server.yaml for a server on this machine: the file, and where its metrics will be. */
async function configure({ directory, port, databaseUrl }: ServerOptions, passwordFile: string) {
  const file = join(directory, `server-${port}.yaml`);
  const secret = '/run/secrets/temporal_database_password';
  const substitutes: [string, string][] = [
    ['postgres:5432', new URL(databaseUrl).host],
    [secret, passwordFile],
    ['/etc/temporal/dynamic.yaml', deployed('dynamic.yaml')],
    ['0.0.0.0', '127.0.0.1'],
    // Those of a few servers that are never grown: 512 of them cost a second of every start.
    ['numHistoryShards: 512', 'numHistoryShards: 8'],
    ['7233', String(port)],
  ];
  const metricsPort = await freeServerPort();
  substitutes.push(['9464', String(metricsPort)]);
  // The other three services, how all four find each other, and HTTP.
  for (const other of ['7234', '7235', '7239', '6933', '6934', '6935', '6939', '7243'])
    substitutes.push([other, String(await freeServerPort())]);
  await writeFile(file, replaced(await readFile(deployed('server.yaml'), 'utf8'), substitutes));
  return { file, metricsPort };
}

/** At once: a port that is put in place of another may look like a third. */
function replaced(text: string, substitutes: readonly (readonly [string, string])[]): string {
  for (const [from] of substitutes)
    if (!text.includes(from)) throw new Error(`server.yaml has no "${from}" any more.`);
  const by = new Map(substitutes);
  const any = new RegExp(substitutes.map(([from]) => from.replaceAll('.', '\\.')).join('|'), 'g');
  return text.replace(any, (found) => by.get(found) ?? found);
}

/** As deploy/postgres/create-databases.sh makes them. */
async function createDatabases(admin: Database, password: string): Promise<void> {
  await admin.unsafe(`create role temporal login password '${password}'`);
  for (const name of ['temporal', 'temporal_visibility']) {
    await admin.unsafe(`create database ${name} owner temporal`);
    await admin.unsafe(`revoke all on database ${name} from public`);
    // A commit need not reach the disk of a test; the service's own database keeps its settings.
    await admin.unsafe(`alter database ${name} set synchronous_commit = off`);
  }
}

async function runScript(name: string, env: NodeJS.ProcessEnv): Promise<void> {
  const args = [deployed(name)];
  const exit = await runCommand({ command: 'sh', args, env, timeoutMs: scriptLimitMs });
  if (exit.code !== 0) throw new Error([`${name} failed:`, ...exit.lastWords].join('\n  '));
}
