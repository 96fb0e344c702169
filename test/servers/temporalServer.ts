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

/** Time limit for a script. create-namespace.sh alone waits up to a minute for a healthy server. */
const scriptLimitMs = 90_000;

type ServerOptions = {
  /** Folder for the configuration files of all servers of the cluster; the data is in PostgreSQL. */
  readonly directory: string;
  /** The port of this server. Servers on one database form one cluster. */
  readonly port: number;
  /** The owner's URL of the PostgreSQL server in which Temporal's databases are created. */
  readonly databaseUrl: string;
};

/**
 * Starts Temporal on PostgreSQL as docker-compose.yml does: same command, same configuration and same
 * scripts for schema and namespace. Only addresses, ports and the number of history shards differ.
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
        // The endpoint that Prometheus scrapes.
        return (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).ok;
      },
    },
    readyTimeoutMs: scriptLimitMs,
    // The same time that the container has.
    stopTimeoutMs: 60_000,
    onLog: () => undefined,
  });
}

/** Ports already handed out, to servers that may not be listening yet. */
const assignedPorts = new Set<number>();

/**
 * Returns a free port that the server can use. Temporal stores its ports in PostgreSQL as `smallint`,
 * so a port above 32767, which the system might assign, makes it exit at startup.
 */
export async function freeServerPort(): Promise<number> {
  for (let taken = 0; ; ) {
    const port = randomInt(16_384, 32_768);
    if (assignedPorts.has(port)) continue;
    assignedPorts.add(port);
    try {
      return await choosePort(port, 'none');
    } catch (error) {
      taken += 1;
      // With a thousand listeners on the machine, three occupied ports in a row have odds of one in 4,000.
      if (taken === 3) throw error;
    }
  }
}

/** Reads the databases' password. The first server of a cluster creates it. */
async function prepare(directory: string) {
  const passwordFile = join(directory, 'password');
  const isNewCluster = !existsSync(passwordFile);
  if (isNewCluster) {
    await mkdir(directory, { recursive: true });
    await writeFile(passwordFile, randomBytes(18).toString('base64url'));
  }
  return { isNewCluster, passwordFile, password: await readFile(passwordFile, 'utf8') };
}

/** Writes server.yaml for a server on this machine. Returns the file and the port of its metrics. */
async function configure({ directory, port, databaseUrl }: ServerOptions, passwordFile: string) {
  const file = join(directory, `server-${port}.yaml`);
  const secret = '/run/secrets/temporal_database_password';
  const substitutes: [string, string][] = [
    ['postgres:5432', new URL(databaseUrl).host],
    [secret, passwordFile],
    ['/etc/temporal/dynamic.yaml', deployed('dynamic.yaml')],
    ['0.0.0.0', '127.0.0.1'],
    // A few servers that never grow need few shards: 512 of them add a second to every start.
    ['numHistoryShards: 512', 'numHistoryShards: 8'],
    ['7233', String(port)],
  ];
  const metricsPort = await freeServerPort();
  substitutes.push(['9464', String(metricsPort)]);
  // The ports of the other three services, of cluster membership, and of HTTP.
  for (const other of ['7234', '7235', '7239', '6933', '6934', '6935', '6939', '7243'])
    substitutes.push([other, String(await freeServerPort())]);
  await writeFile(file, replaced(await readFile(deployed('server.yaml'), 'utf8'), substitutes));
  return { file, metricsPort };
}

/** Replaces everything in one pass, because a substituted port may equal one still to be replaced. */
function replaced(text: string, substitutes: readonly (readonly [string, string])[]): string {
  for (const [from] of substitutes)
    if (!text.includes(from)) throw new Error(`server.yaml no longer contains "${from}".`);
  const by = new Map(substitutes);
  const any = new RegExp(substitutes.map(([from]) => from.replaceAll('.', '\\.')).join('|'), 'g');
  return text.replace(any, (found) => by.get(found) ?? found);
}

/** Creates the databases like deploy/postgres/create-databases.sh. */
async function createDatabases(admin: Database, password: string): Promise<void> {
  await admin.unsafe(`create role temporal login password '${password}'`);
  for (const name of ['temporal', 'temporal_visibility']) {
    await admin.unsafe(`create database ${name} owner temporal`);
    await admin.unsafe(`revoke all on database ${name} from public`);
    // Tests need no durable commits here; the service's own database keeps its settings.
    await admin.unsafe(`alter database ${name} set synchronous_commit = off`);
  }
}

async function runScript(name: string, env: NodeJS.ProcessEnv): Promise<void> {
  const args = [deployed(name)];
  const exit = await runCommand({ command: 'sh', args, env, timeoutMs: scriptLimitMs });
  if (exit.code !== 0) throw new Error([`${name} failed:`, ...exit.lastWords].join('\n  '));
}
