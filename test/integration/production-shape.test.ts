import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { Client, Connection, ScheduleNotFoundError } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import { freePort } from '../../sandbox/stack/ports.js';
import { startPostgres } from '../../sandbox/stack/postgres.js';
import { type Part, startProcess } from '../../sandbox/stack/process.js';
import { readMasterKeyConfig, readWorkerConfig } from '../../src/config.js';
import { connectDatabase } from '../../src/db/client.js';
import { scheduleIds } from '../../src/temporal/schedules.js';
import { openTlsLine } from '../fakes/tlsLine.js';
import { archiveCommand, backupGuide } from '../fixtures/backupSettings.js';
import { makeCertificates } from '../fixtures/certificates.js';
import { createClient, textOf, untilStatus } from '../fixtures/client.js';
import { blocksOf } from '../fixtures/fencedBlocks.js';
import { scrapedServices } from '../fixtures/monitoring.js';
import { createTestAccount } from '../servers/database.js';
import { processesOf } from '../servers/processes.js';
import { temporalAddress } from '../servers/temporalAddress.js';
import {
  type ComposeService,
  danglingNames,
  parseCompose,
  schemaErrors,
  unmountedSecrets,
  vainConditions,
} from './compose.js';

/** The database roles of the processes; only `migrate` connects as the owner. */
const roles = [
  ...(['corridor_api', 'corridor_worker', 'corridor_operator', 'corridor_sign_in'] as const),
];

const forbidden = [
  'update ledger_balances set amount_minor = amount_minor + 1',
  'alter table ledger_entries disable trigger all',
  'alter table ledger_balances disable trigger all',
  'delete from ledger_entries',
  'update payouts set settled_since = now()',
  'set role corridor',
  'set session_replication_role = replica',
];

const root = fileURLToPath(new URL('../..', import.meta.url));
const composeText = readFileSync(join(root, 'docker-compose.yml'), 'utf8');
const { raw, compose } = parseCompose(composeText);

/** A URL whose password contains a character that has a meaning in URLs. */
const unencoded = 'postgres://corridor:hunter#2@postgres:5432/corridor';

/** The services that run our own image. */
const ownServices = Object.entries(compose.services)
  .filter(([, { image }]) => image === 'corridor')
  .map(([name]) => name);

/** The Compose file with a mistake in it. */
function broken(from: string, to: string) {
  if (!composeText.includes(from)) throw new Error(`docker-compose.yml has no "${from}" any more.`);
  return parseCompose(composeText.replace(from, to));
}

describe('docker-compose.yml', () => {
  it('is a Compose file', () => {
    expect(schemaErrors(raw)).toEqual([]);
    expect(schemaErrors(broken('shm_size:', 'shmsize:').raw)).not.toEqual([]);
    expect(
      schemaErrors(broken('condition: service_healthy', 'condition: service_happy').raw),
    ).not.toEqual([]);
  });

  it('defines every network, volume, secret and config that a service uses', () => {
    expect(danglingNames(compose)).toEqual([]);
    for (const name of ['temporal', 'corridor_database_url', 'bank-journal', 'temporal-schema']) {
      const definition = new RegExp(`^  ${name}:(?= \\{\\}$|\\n    (?:internal|file))`, 'm');
      const { compose: without } = parseCompose(composeText.replace(definition, '  gone:'));
      expect(danglingNames(without), name).not.toEqual([]);
    }
  });

  it('waits only for conditions that can be met', () => {
    expect(vainConditions(compose)).toEqual([]);
    const mistakes = [
      broken('      postgres:\n        condition', '      database:\n        condition'),
      broken('restart: on-failure:3', 'restart: unless-stopped'),
      broken('    healthcheck:\n      # Over TCP', '    x-off:\n      # Over TCP'),
    ];
    for (const mistake of mistakes) expect(vainConditions(mistake.compose)).not.toEqual([]);
  });

  it('mounts each secret that a variable names', () => {
    expect(unmountedSecrets(compose)).toEqual([]);
    const forgotten = broken('      - fingerprint_secret\n', '').compose;
    expect(unmountedSecrets(forgotten)).toHaveLength(1);
  });

  it('gives each service the secrets it uses, and no other', () => {
    const ofWorkers = [
      ...['corridor_worker_database_url', 'master_key', 'sandbox_bank_token'],
      ...['temporal_encryption_keys', 'webhook_signing_keys'],
    ];
    const mounted = Object.entries(compose.services).map(([name, { secrets }]) => [
      name,
      secrets.toSorted(),
    ]);
    expect(Object.fromEntries(mounted)).toMatchObject({
      api: [
        'corridor_api_database_url',
        'fingerprint_secret',
        'master_key',
        'sandbox_bank_callback_secret',
        'sandbox_bank_callback_secret_previous',
        'temporal_encryption_keys',
        'webhook_signing_keys',
      ],
      worker: ofWorkers,
      'batch-worker': ofWorkers,
      'sandbox-bank': ['sandbox_bank_callback_secret', 'sandbox_bank_token'],
      operator: ['corridor_operator_database_url', 'temporal_encryption_keys'],
      'sign-in': ['corridor_sign_in_database_url'],
      codec: ['codec_token', 'temporal_encryption_keys'],
      proxy: ['proxy_certificate', 'proxy_operators'],
      prometheus: [],
      grafana: ['grafana_admin_password'],
      'temporal-ui': [],
    });
    // Every mounted secret must be named by a variable.
    for (const name of [...ownServices, 'grafana']) {
      const { environment, secrets } = serviceOf(name);
      const named = Object.values(environment).flatMap(
        (value) => /^\/run\/secrets\/(\w+)$/.exec(value)?.[1] ?? [],
      );
      expect(named.toSorted(), name).toEqual(secrets.toSorted());
    }
  });

  it('gives each process only its own database login', () => {
    const loginsOf = (name: string) =>
      serviceOf(name).secrets.filter((secret) => secret.endsWith('_database_url'));
    const loginsByService = Object.keys(compose.services).map(
      (name) => [name, loginsOf(name)] as const,
    );
    expect(Object.fromEntries(loginsByService.filter(([, logins]) => logins.length > 0))).toEqual({
      api: ['corridor_api_database_url'],
      worker: ['corridor_worker_database_url'],
      'batch-worker': ['corridor_worker_database_url'],
      operator: ['corridor_operator_database_url'],
      'sign-in': ['corridor_sign_in_database_url'],
      migrate: ['corridor_database_url'],
    });
  });

  it('mounts files that exist, and runs programs that the build creates', () => {
    for (const { file } of Object.values(compose.configs)) {
      expect(existsSync(join(root, file)), file).toBe(true);
    }
    for (const { command } of Object.values(compose.services)) {
      const program = command.find((word) => word.startsWith('dist/'));
      if (program !== undefined) expect(existsSync(join(root, program)), program).toBe(true);
    }
  });

  it('runs no script of a package when the image is built', () => {
    const dockerfile = readFileSync(join(root, 'Dockerfile'), 'utf8');
    const installs = dockerfile.match(/^RUN npm ci.*$/gm) ?? [];
    expect(installs).toHaveLength(2);
    expect(installs.filter((line) => !line.includes(' --ignore-scripts'))).toEqual([]);
  });

  it('has a health check and a restart policy for every long-running process', () => {
    const staying = Object.entries(compose.services).filter(
      ([, { restart, profiles }]) => !restart.startsWith('on-failure') && profiles.length === 0,
    );
    expect(staying.map(([name]) => name).sort()).toEqual(
      [
        ...['api', 'batch-worker', 'codec', 'grafana', 'postgres', 'prometheus', 'proxy'],
        ...['sandbox-bank', 'temporal', 'temporal-2', 'temporal-ui', 'worker'],
      ].sort(),
    );
    for (const [name, { healthcheck, restart }] of staying) {
      expect(healthcheck?.test[0], name).toBe('CMD');
      expect(restart, name).toBe('unless-stopped');
    }
  });

  it('publishes no port of the database or the bank, and other ports on this machine only', () => {
    for (const [name, { networks, ports }] of Object.entries(compose.services)) {
      const isInside = networks.every((network) => compose.networks[network]?.internal);
      const outside = ['api', 'worker', 'batch-worker', 'proxy', 'grafana', 'operator', 'sign-in'];
      expect(isInside, name).toBe(!outside.includes(name));
      for (const port of ports) expect(port, name).toMatch(/^127\.0\.0\.1:/);
      if (isInside) expect(ports, name).toEqual([]);
    }
  });

  it('archives and backs up with the override file in docs/operations.md', () => {
    const [text = ''] = blocksOf(backupGuide, 'yaml');
    const override: unknown = parse(text);
    expect(schemaErrors(override)).toEqual([]);
    const changed = z.strictObject({ command: z.array(z.string()), volumes: z.array(z.string()) });
    const { services } = z
      .strictObject({ services: z.strictObject({ postgres: changed }) })
      .parse(override);
    const { command, volumes } = services.postgres;
    // Compose adds the volumes of an override to those of the service, but replaces its command.
    const own = serviceOf('postgres').command;
    expect(command.slice(0, own.length)).toEqual(own);
    const [archive, backup] = ['/srv/corridor/archive', '/srv/corridor/backup'];
    expect(volumes).toEqual([`${archive}:/archive`, `${backup}:/backup`]);
    expect(backupGuide).toContain(`-o 999 -g 999 ${archive} ${backup}`);
    expect(serviceOf('postgres').user).toBe('999:999');
    const settings = ['archive_mode=on', `archive_command=${archiveCommand}`, 'archive_timeout=60'];
    expect(command.slice(own.length)).toEqual(settings.flatMap((setting) => ['-c', setting]));
    for (const setting of settings)
      expect(backupGuide.replaceAll("'", '')).toContain(`\`${setting}\``);
  });

  it('requires the rate source to be set', () => {
    expect(serviceOf('worker').environment['RATE_SOURCE']).toBe('');
    expect(serviceOf('batch-worker').environment['RATE_SOURCE']).toBe('');
  });

  it('makes the API trust the proxy, or the configured addresses instead', () => {
    const { networks } = z
      .object({
        networks: z.object({ outside: z.object({ ipv4_address: z.string() }) }),
      })
      .parse(serviceIn(raw, 'proxy'));
    expect(networks.outside.ipv4_address).toMatch(/^10\./);
    expect(serviceOf('api').environment['TRUSTED_PROXIES']).toBe(networks.outside.ipv4_address);
  });

  it('has two Temporal servers that clients reach by one name and that reach each other', () => {
    const own = z.object({ ipv4_address: z.string() });
    const at = z.object({ networks: z.object({ 'temporal-servers': own }) });
    const addressOf = (name: string) => at.parse(serviceIn(raw, name)).networks['temporal-servers'];
    for (const name of ['temporal', 'temporal-2'])
      expect(serviceOf(name).environment['TEMPORAL_BROADCAST_ADDRESS']).toBe(
        addressOf(name).ipv4_address,
      );
    expect(addressOf('temporal')).not.toEqual(addressOf('temporal-2'));
    expect(serviceIn(raw, 'temporal-2')).toMatchObject({
      networks: { temporal: { aliases: ['temporal'] } },
    });
  });

  it('has Prometheus share a network with every service that it scrapes', () => {
    const reached = Object.entries(compose.services)
      .filter(([, { networks }]) => networks.includes('metrics'))
      .map(([name]) => name);
    expect(scrapedServices).toContain('temporal-2');
    expect(reached).toEqual(expect.arrayContaining(['prometheus', ...scrapedServices]));
  });

  it('allows replicas of the API and the workers', () => {
    for (const name of ['api', 'worker', 'batch-worker']) {
      const { container_name, ports } = serviceOf(name);
      expect([name, container_name, ports]).toEqual([name, undefined, []]);
    }
  });

  it('limits what each container can use, and gives it no privilege that it does not need', () => {
    for (const [name, each] of Object.entries(compose.services)) {
      expect(each.cpus, name).toBeGreaterThan(0);
      expect(each.mem_limit, name).toMatch(/^\d+[mg]$/);
      expect(each.pids_limit, name).toBeGreaterThan(0);
      expect(each.logging?.options, name).toEqual({ 'max-size': '20m', 'max-file': '5' });
      // A numeric user other than root.
      expect(each.user, name).toMatch(/^[1-9]\d*:[1-9]\d*$/);
      expect(each.cap_drop, name).toEqual(['ALL']);
      expect(each.security_opt, name).toEqual(['no-new-privileges:true']);
      // The UI writes its configuration at startup.
      expect(each.read_only, name).toBe(name !== 'temporal-ui');
    }
    const roots = parseCompose(composeText.replaceAll('user: "99:99"', 'user: "0:0"')).compose;
    expect(roots.services['proxy']?.user).toBe('0:0');
  });

  it('names each image by its exact version', () => {
    const images = Object.values(compose.services).map(({ image }) => image);
    const dockerfile = readFileSync(join(root, 'Dockerfile'), 'utf8');
    const bases = [...dockerfile.matchAll(/^FROM (\S+)/gm)].map(([, base = '']) => base);
    const otherImages = [...images, ...bases].filter((image) => image !== 'corridor');
    expect(otherImages.length).toBeGreaterThan(8);
    for (const image of otherImages) {
      expect(image).toMatch(/:v?\d+\.\d+(\.\d+)?(-slim)?(@sha256:[0-9a-f]{64})?$/);
    }
  });

  it.each(['api', 'worker', 'batch-worker', 'sandbox-bank'])(
    'starts %s as the tests of crashes and deploys do',
    (name) => {
      const { command, environment } = serviceOf(name);
      const { command: started, env } = processesOf()[name] ?? { command: [], env: [] };
      const args = command.filter((word) => !word.startsWith('--max-semi-space-size'));
      expect(args).toEqual(started);
      const names = Object.keys(environment).map((variable) => variable.replace(/_FILE$/, ''));
      const production = env.filter((variable) => !testVariables.has(variable));
      expect(production.filter((variable) => !names.includes(variable))).toEqual([]);
    },
  );

  it('sets only variables that the process reads', () => {
    const readers = ['src/config.ts', 'sandbox/bank/main.ts'];
    const text = readers.map((file) => readFileSync(join(root, file), 'utf8')).join();
    for (const name of ownServices) {
      for (const variable of Object.keys(serviceOf(name).environment)) {
        const setting = variable.replace(/_FILE$/, '');
        expect(text, `${name} sets ${variable}`).toMatch(new RegExp(`\\b${setting}\\b`));
      }
    }
  });
});

/** Settings for tests only: receivers on this machine, and requests at full speed. */
const testVariables = new Set([
  ...['WEBHOOKS_ALLOW_INSECURE', 'RATE_LIMIT_PER_SECOND', 'RATE_LIMIT_BURST'],
  ...['IN_FLIGHT_LIMIT', 'ITEM_LIMIT_PER_SECOND'],
]);

/** A service as defined in the file. */
function serviceIn(file: unknown, name: string): unknown {
  return z.object({ services: z.record(z.string(), z.unknown()) }).parse(file).services[name];
}

type Place = {
  readonly directory: string;
  readonly apiUrl: string;
  /** Texts of the Compose file, and their replacements on this machine. */
  readonly substitutes: readonly (readonly [inContainer: string, here: string])[];
};

/** Creates secrets with make-secrets.sh in a separate directory. */
async function makeSecrets(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'corridor-production-'));
  const made = await runToEnd(
    'sh',
    [join(root, 'deploy/make-secrets.sh'), join(directory, 'secrets')],
    {},
  );
  expect(made.code, made.errors).toBe(0);
  return directory;
}

/** Maps the containers' ports and paths to those of this machine. */
async function findPlace(directory: string, postgresPort: number): Promise<Place> {
  const secrets = join(directory, 'secrets');
  for (const name of readdirSync(secrets).filter((file) => file.endsWith('_url'))) {
    const url = await readFile(join(secrets, name), 'utf8');
    await rm(join(secrets, name));
    const hostUrl = url.replace('postgres:5432', `127.0.0.1:${postgresPort}`);
    await writeFile(join(secrets, name), hostUrl);
  }
  await mkdir(join(directory, 'volume'));
  const [api, bank] = [await freePort(), await freePort()];
  return {
    directory,
    apiUrl: `http://127.0.0.1:${api}`,
    substitutes: [
      ['/run/secrets', secrets],
      ['/var/lib/corridor', join(directory, 'volume')],
      ['0.0.0.0', '127.0.0.1'],
      ['temporal:7233', temporalAddress()],
      ['sandbox-bank:8090', `127.0.0.1:${bank}`],
      ['api:8080', `127.0.0.1:${api}`],
      ['8080', String(api)],
      ['8090', String(bank)],
    ],
  };
}

/**
 * Deletes the schedules that a worker has created, before it stops and so without open runs: the next
 * test file on this Temporal server would be swept every five seconds.
 */
async function deleteSchedules(): Promise<void> {
  const connection = await Connection.connect({ address: temporalAddress() });
  const { schedule } = new Client({ connection });
  for (const id of scheduleIds) {
    await schedule
      .getHandle(id)
      .delete()
      .catch((error: unknown) => {
        if (!(error instanceof ScheduleNotFoundError)) throw error;
      });
  }
  await connection.close();
}

type Launch = { readonly args: readonly string[]; readonly env: Record<string, string> };

/** The arguments and variables that the service's container would run with, mapped to this machine. */
async function launchOf(name: string, place: Place, changes: Record<string, string> = {}) {
  const service = serviceOf(name);
  const [program, ...args] = service.command;
  expect(program).toBe('node');
  const metrics: Place['substitutes'][number] = ['9464', String(await freePort())];
  const onHost = (value: string) =>
    [...place.substitutes, metrics].reduce((put, [from, to]) => put.replaceAll(from, to), value);
  const environment = { ...service.environment, ...changes };
  const env = Object.entries(environment).map(([variable, value]) => [variable, onHost(value)]);
  return {
    launch: { args, env: { NODE_ENV: 'production', ...Object.fromEntries(env) } },
    /** The health check's exit code. */
    isHealthy: async () => {
      const [, , ...check] = service.healthcheck?.test ?? [];
      return (await runToEnd(process.execPath, check.map(onHost), {})).code;
    },
  };
}

function serviceOf(name: string): ComposeService {
  const service = compose.services[name];
  if (service === undefined) throw new Error(`There is no service ${name}.`);
  return service;
}

function startService(name: string, { args, env }: Launch): Promise<Part> {
  return startProcess({
    name,
    command: process.execPath,
    args,
    env,
    cwd: root,
    ready: { line: (line) => /"(?:ready|listening)":"(http[^"]+)"/.exec(line)?.[1] },
    readyTimeoutMs: 45_000,
    // The stop timeout in docker-compose.yml.
    stopTimeoutMs: 30_000,
    onLog: () => undefined,
  });
}

async function runToEnd(command: string, args: readonly string[], env: Record<string, string>) {
  const child = spawn(command, args, {
    cwd: root,
    env: { PATH: process.env['PATH'], ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 30_000,
  });
  const [output, errors] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  return { code: child.exitCode, output, errors };
}

/**
 * A server in the state of the container `postgres` after its first start: the init script of the image
 * has created roles and databases, and the service `migrate` has filled them. The owner of the tables is
 * not a superuser there.
 */
async function startFilledPostgres(secrets: string) {
  const dataDir = await mkdtemp(join(tmpdir(), 'corridor-production-postgres-'));
  const port = await freePort();
  const server = await startPostgres({
    dataDir,
    port,
    database: 'unused',
    onLog: () => undefined,
  });
  const stop = async () => {
    await server.stop();
    await rm(dataDir, { recursive: true, force: true });
  };
  try {
    const url = new URL(server.databaseUrl);
    url.pathname = '/postgres';
    await run(url.href, `create role postgres superuser login password '${url.password}'`);
    const builder = url.username;
    url.username = 'postgres';
    // The embedded server's own superuser has the name that the service's owner has in production.
    await run(url.href, `alter role ${builder} rename to builder`);
    await run(url.href, `alter role postgres password '${url.password}'`);
    await initialise(secrets, dataDir, url.href);
    return { port, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Runs the script that is mounted into the container, with a stand-in for psql. */
async function initialise(secrets: string, directory: string, url: string): Promise<void> {
  const script = readFileSync(join(root, 'deploy/postgres/create-databases.sh'), 'utf8');
  const bin = join(directory, 'bin');
  await mkdir(bin);
  const psql = join(root, 'test/integration/psql.mjs');
  await writeFile(join(bin, 'psql'), `#!/bin/sh\nexec "${process.execPath}" "${psql}" "$@"\n`, {
    mode: 0o755,
  });
  const made = await runToEnd('sh', ['-c', script.replaceAll('/run/secrets', secrets)], {
    PATH: `${bin}:${process.env['PATH']}`,
    PSQL_URL: url,
  });
  expect(made.code, made.errors).toBe(0);
}

/** Runs a statement as the user in the URL. */
async function run(url: string, statement: string): Promise<readonly object[]> {
  const database = connectDatabase({ url, poolSize: 1, applicationName: 'test' });
  try {
    return await database.unsafe(statement);
  } finally {
    await database.end({ timeout: 5 });
  }
}

describe('the processes of docker-compose.yml', () => {
  let postgres: Awaited<ReturnType<typeof startFilledPostgres>>;
  let place: Place;
  const urlOf = (role: string) =>
    readFileSync(join(place.directory, 'secrets', `${role}_database_url`), 'utf8').trim();

  beforeAll(async () => {
    const directory = await makeSecrets();
    postgres = await startFilledPostgres(join(directory, 'secrets'));
    place = await findPlace(directory, postgres.port);
  });
  afterAll(async () => {
    await rm(place.directory, { recursive: true });
    await postgres.stop();
  });

  it('have every secret that make-secrets.sh creates, which keeps existing ones', async () => {
    const secrets = join(place.directory, 'other-secrets');
    const make = () => runToEnd('sh', [join(root, 'deploy/make-secrets.sh'), secrets], {});
    const read = () =>
      readdirSync(secrets).map((name) => readFileSync(join(secrets, name), 'utf8'));
    mkdirSync(secrets, { mode: 0o755 });
    await make();
    expect(statSync(secrets).mode & 0o777).toBe(0o700);
    const before = read();
    expect(readdirSync(secrets).sort()).toEqual(Object.keys(compose.secrets).sort());
    for (const [name, { file }] of Object.entries(compose.secrets)) {
      expect(file).toBe(`./secrets/${name}`);
    }
    for (const role of ['corridor', ...roles]) {
      const url = new URL(await readFile(join(secrets, `${role}_database_url`), 'utf8'));
      expect(url).toMatchObject({ host: 'postgres:5432', username: role, pathname: '/corridor' });
      const password = await readFile(join(secrets, `${role}_database_password`), 'utf8');
      expect(url.password).toBe(password.trim());
    }
    await make();
    expect(read()).toEqual(before);
  });

  it('have no secret, rather than some of them, where make-secrets.sh finds no openssl', async () => {
    const secrets = join(place.directory, 'no-secrets');
    const bin = join(place.directory, 'without-openssl');
    mkdirSync(bin);
    for (const tool of ['mkdir', 'chmod', 'od', 'tr', 'head', 'base64', 'date', 'cat'])
      symlinkSync(`/usr/bin/${tool}`, join(bin, tool));
    const make = () =>
      runToEnd('/bin/sh', [join(root, 'deploy/make-secrets.sh'), secrets], { PATH: bin });
    const needed = 'deploy/make-secrets.sh needs openssl: install it, and run this again.\n';
    expect(await make()).toEqual({ code: 1, output: '', errors: needed });
    expect(existsSync(secrets)).toBe(false);
    // Like an OpenSSL without -noenc.
    await writeFile(join(bin, 'openssl'), '#!/bin/sh\nexit 1\n', { mode: 0o755 });
    const old = 'openssl cannot make a certificate: version 3.0 or newer is needed.\n';
    expect(await make()).toMatchObject({ code: 1, errors: old });
  });

  it('change the callback secret as docs/operations.md says', async () => {
    const secrets = join(place.directory, 'changed-secrets');
    const make = () => runToEnd('sh', [join(root, 'deploy/make-secrets.sh'), secrets], {});
    const read = () => ({
      current: readFileSync(join(secrets, 'sandbox_bank_callback_secret'), 'utf8').trim(),
      previous: readFileSync(join(secrets, 'sandbox_bank_callback_secret_previous'), 'utf8').trim(),
    });
    await make();
    const first = read();
    expect(first).toEqual({ current: expect.stringMatching(/^[0-9a-f]{48}$/), previous: '' });
    const guide = readFileSync(join(root, 'docs/operations.md'), 'utf8');
    const commands = guide.matchAll(/^ {3}`((?:mv|rm) -f secrets[^`]*)`/gm);
    const [begin, finish] = [...commands].map(([, command = '']) =>
      command.replaceAll('secrets/', `${secrets}/`),
    );
    await runToEnd('sh', ['-c', begin ?? ''], {});
    await make();
    const second = read();
    expect(second.previous).toBe(first.current);
    expect(second.current).toMatch(/^[0-9a-f]{48}$/);
    expect(second.current).not.toBe(first.current);
    await runToEnd('sh', ['-c', finish ?? ''], {});
    await make();
    expect(read()).toEqual({ current: second.current, previous: '' });
  });

  it('change the key that signs webhooks as docs/operations.md says', async () => {
    const secrets = join(place.directory, 'changed-signing-keys');
    await runToEnd('sh', [join(root, 'deploy/make-secrets.sh'), secrets], {});
    const file = join(secrets, 'webhook_signing_keys');
    const read = () =>
      readWorkerConfig({
        ...{ DATABASE_URL: 'postgres://postgres/corridor', TEMPORAL_ADDRESS: 'temporal:7233' },
        ...{ SANDBOX_BANK_URL: 'http://bank', RATE_SOURCE: 'reference' },
        MASTER_KEY_FILE: join(secrets, 'master_key'),
        SANDBOX_BANK_TOKEN_FILE: join(secrets, 'sandbox_bank_token'),
        WEBHOOK_SIGNING_KEYS_FILE: file,
      }).WEBHOOK_SIGNING_KEYS;
    const guide = readFileSync(join(root, 'docs/operations.md'), 'utf8');
    const commands = guide.matchAll(/^ {3}`([^`]* > secrets\/next && [^`]*)`/gm);
    const held = [read()];
    for (const [, command = ''] of commands) {
      await runToEnd('sh', ['-c', command.replaceAll('secrets/', `${secrets}/`)], {});
      held.push(read());
    }
    const [old, next] = held[1] ?? [];
    expect(held).toEqual([[old], [old, next], [next, old], [next]]);
    expect(next).not.toBe(old);
  });

  it('change the master key as docs/operations.md says', async () => {
    const secrets = join(place.directory, 'changed-keys');
    await runToEnd('sh', [join(root, 'deploy/make-secrets.sh'), secrets], {});
    const read = () => readMasterKeyConfig({ MASTER_KEY_FILE: join(secrets, 'master_key') });
    const guide = readFileSync(join(root, 'docs/operations.md'), 'utf8');
    const commands = guide.matchAll(/^ {3}`([^`]* > secrets\/(?:both|one) && [^`]*)`/gm);
    const held = [read().MASTER_KEY];
    for (const [, command = ''] of commands) {
      const { code } = await runToEnd(
        'sh',
        ['-c', command.replaceAll('secrets/', `${secrets}/`)],
        {},
      );
      expect(code, command).toBe(0);
      held.push(read().MASTER_KEY);
    }
    const [[older] = [], [, newer] = []] = held;
    expect(newer).not.toBe(older);
    expect(held).toEqual([[older], [older, newer], [newer, older], [newer]]);
  });

  it('settle a payout over mutual TLS and end with code 0 on SIGTERM', {
    timeout: 120_000,
  }, async () => {
    const certificates = await makeCertificates();
    const line = await openTlsLine(temporalAddress(), certificates);
    const settings = {
      RATE_SOURCE: 'reference',
      TEMPORAL_ADDRESS: line.address,
      TEMPORAL_TLS_CA_FILE: certificates.ca.cert,
      TEMPORAL_TLS_CERT_FILE: certificates.client.cert,
      TEMPORAL_TLS_KEY_FILE: certificates.client.key,
    };
    const migrate = await launchOf('migrate', place);
    const migrated = await runToEnd(process.execPath, migrate.launch.args, migrate.launch.env);
    expect(migrated).toMatchObject({ code: 0, output: expect.stringMatching(/^Applied /) });

    const services = ['sandbox-bank', 'worker', 'api'];
    const launches = await Promise.all(services.map((name) => launchOf(name, place, settings)));
    const parts: Part[] = [];
    try {
      for (const [index, { launch }] of launches.entries()) {
        parts.push(await startService(services[index] ?? '', launch));
      }
      expect(await Promise.all(launches.map(({ isHealthy }) => isHealthy()))).toEqual([0, 0, 0]);
      await settlePayout(urlOf('corridor'), place.apiUrl);
      expect(line.count()).toBeGreaterThan(1);
      const wrong = await launchOf('worker', place, { ...settings, TEMPORAL_NAMESPACE: 'payuots' });
      const { code, errors } = await runToEnd(
        process.execPath,
        wrong.launch.args,
        wrong.launch.env,
      );
      expect([code, errors]).toEqual([
        1,
        'TEMPORAL_NAMESPACE: expected a namespace of the server, not payuots\n',
      ]);
    } finally {
      await deleteSchedules();
      await Promise.all(parts.map((part) => part.stop()));
      await line.close();
      await rm(certificates.directory, { recursive: true });
    }
    const exits = await Promise.all(parts.map((part) => part.exited));
    expect(exits.map(({ code }) => code)).toEqual([0, 0, 0]);
    expect(await Promise.all(launches.map(({ isHealthy }) => isHealthy()))).toEqual([1, 1, 1]);
  });

  it.each(roles)('connect as %s, which cannot edit balances or disable triggers', async (role) => {
    const url = urlOf(role);
    for (const statement of forbidden) {
      await expect(run(url, statement), statement).rejects.toMatchObject({ code: '42501' });
    }
    // The sign-in service's role may read nothing at all.
    if (role === 'corridor_sign_in') return;
    expect(await run(url, 'select count(*)::int as edited from balance_breaks')).toEqual([
      { edited: 0 },
    ]);
  });

  it('use tables whose owner is no superuser and cannot create roles', async () => {
    const rights = await run(
      urlOf('corridor'),
      'select rolsuper or rolcreaterole as "any" from pg_roles where rolname = session_user',
    );
    expect(rights).toEqual([{ any: false }]);
  });

  it.each([
    ['api', 'API_PORT', 'abc', 'a port number, 0 to 65535'],
    ['api', 'FINGERPRINT_SECRET_FILE', '/dev/null', 'a file that is not empty'],
    ['api', 'MASTER_KEY_FILE', '', '64 hexadecimal digits', 'MASTER_KEY'],
    ['worker', 'MASTER_KEY_FILE', '/dev/null', 'a file that is not empty'],
    ['api', 'TRUSTED_PROXIES', '10.0.0.0/8,10.0.0.0/99', 'addresses and subnets'],
    ['worker', 'METRICS_PORT', 'abc', 'a port number, 0 to 65535'],
    ['worker', 'TEMPORAL_ADDRESS', 'temporal', 'host:port'],
    ['worker', 'TEMPORAL_WORKER_BUILD_ID', 'my build', 'the name of a build'],
    ['worker', 'RATE_SOURCE', '', 'reference, ecb or table, but it is not set'],
    ['sandbox-bank', 'BANK_PORT', 'abc', 'a port number, 0 to 65535'],
    ['sandbox-bank', 'BANK_CALLBACK_URL', 'ftp://api', 'an http or https URL'],
    ['migrate', 'DATABASE_URL_FILE', '/nowhere', 'a file that can be read'],
    ['api', 'DATABASE_URL', unencoded, 'a URL (postgres://)'],
    ['worker', 'DATABASE_URL', unencoded, 'a URL (postgres://)'],
    ['migrate', 'DATABASE_URL', unencoded, 'a URL (postgres://)'],
  ])(
    'stop at an invalid setting: %s with %s=%s',
    async (name, variable, value, expected, reported = variable) => {
      const { launch } = await launchOf(name, place, { [variable]: value });
      const { code, output, errors } = await runToEnd(process.execPath, launch.args, launch.env);
      // The command line distinguishes unreachable or unreadable resources from refusals.
      expect(code).toBe(name === 'migrate' ? 3 : 1);
      expect(errors).toContain(`${reported}: expected ${expected}`);
      expect(`${output}${errors}`).not.toContain('hunter');
    },
  );
});

/** Sends a payout from a new account of the database, and waits until it is settled. */
async function settlePayout(databaseUrl: string, apiUrl: string): Promise<void> {
  const database = connectDatabase({ url: databaseUrl, poolSize: 1, applicationName: 'test' });
  try {
    const { apiKey } = await createTestAccount(database);
    const client = createClient(apiUrl, apiKey);
    const quote = await client('POST /v1/quotes', {
      form: { source_currency: 'USD', destination_currency: 'EUR', amount: '125000' },
    });
    const beneficiary = await client('POST /v1/beneficiaries', {
      form: {
        type: 'individual',
        name: 'Ada Lovelace',
        country: 'DE',
        currency: 'EUR',
        iban: 'DE89370400440532013000',
      },
    });
    const payout = await client('POST /v1/payouts', {
      form: { quote: textOf(quote, 'id'), beneficiary: textOf(beneficiary, 'id') },
    });
    const settled = await untilStatus(client, textOf(payout, 'id'), 'settled');
    expect(settled.body).toMatchObject({ received: quote.body['receive_amount'] });
  } finally {
    await database.end({ timeout: 5 });
  }
}
