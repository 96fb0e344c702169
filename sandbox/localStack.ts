import { randomBytes } from 'node:crypto';
import { appendFileSync, mkdirSync, rmSync } from 'node:fs';
import { chown, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { readJson, writeJson } from '../src/cli/jsonFile.js';
import { rateProviderOf } from '../src/cli/rates.js';
import { readStackConfig, type StackConfig } from '../src/config.js';
import { connectDatabase, type Database, transaction } from '../src/db/client.js';
import { migrate } from '../src/db/migrate.js';
import { countOtherAdmins, enrollAdmin } from '../src/db/operators.js';
import { pinProvider } from '../src/db/rates.js';
import { allowLogins, type DatabaseUrls, loginUrls } from '../src/db/roles.js';
import { type Seed, seedAccount } from './seed.js';
import { type Claim, claimDataDirectory } from './stack/dataDirectory.js';
import { choosePort } from './stack/ports.js';
import { startPostgres } from './stack/postgres.js';
import { type Exit, type Part, startProcess } from './stack/process.js';
import { startTemporalDevServer } from './stack/temporal.js';
import { findTemporalCli } from './stack/temporalBinary.js';
import { ownerFor } from './stack/unprivileged.js';

export type StackPorts = {
  readonly api: number;
  readonly metrics: number;
  readonly temporal: number;
  readonly temporalUi: number;
  readonly postgres: number;
  readonly bank: number;
};

export type StackOptions = {
  readonly directory: string;
  /** 0 picks a free port. */
  readonly ports: StackPorts;
  readonly reset: boolean;
  /** Shortens the bank's key retention and settlement time to minutes, so that operators can rehearse. */
  readonly isRehearsal?: boolean;
  readonly onProgress: (line: string) => void;
};

/** Contents of `stack.json`, which exists while the stack runs. */
export type StackDescription = {
  readonly api_url: string;
  readonly api_key: string;
  readonly metrics_url: string;
  readonly temporal_address: string;
  readonly temporal_ui_url: string | null;
  /** The developer's operator key; absent if the database has other admins. */
  readonly operator_key?: string | undefined;
  readonly database_url: string;
  readonly sandbox_bank_url: string;
  readonly pids: Readonly<Record<string, number>>;
};

export type Stack = {
  readonly description: StackDescription;
  readonly seed: Seed;
  /** Resolves with the first part that exits without having been stopped. */
  readonly broken: Promise<{ readonly part: string; readonly exit: Exit }>;
  readonly stop: () => Promise<void>;
};

/** Starts every part for which no existing service is configured, in order of their dependencies. */
export async function startStack(options: StackOptions): Promise<Stack> {
  const directory = resolve(options.directory);
  // The parts inherit this, so that only this user can read what they write.
  process.umask(0o077);
  const claim = await claimDataDirectory(directory);
  // Remove the file of a killed stack, so that nobody waiting for the new one reads the old one.
  await rm(join(directory, 'stack.json'), { force: true });
  const parts: Part[] = [];
  const stop = async () => {
    await rm(join(directory, 'stack.json'), { force: true });
    // In reverse order, so that each part stops before those it depends on.
    for (const part of parts.toReversed()) await part.stop();
    claim.release();
  };
  try {
    if (options.reset) emptyDirectory(directory);
    return await startParts({ ...options, directory }, claim, parts, stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

/**
 * A large young generation, because this worker creates thousands of short-lived objects and garbage
 * collection then copies fewer of them. The other parts handle single requests, for which a small young
 * generation is faster because it stays in the CPU caches.
 */
const batchWorker = {
  folder: 'src/worker',
  args: ['--lane', 'batch'],
  flags: ['--max-semi-space-size=64'],
} as const;

/**
 * A small young generation, because a page of results is a megabyte of short-lived text. Its garbage
 * collection, which blocks all requests, then takes 3 ms instead of 15, and unread pages retain less.
 */
const api = { flags: ['--max-semi-space-size=8'] } as const;
const bank = { folder: 'sandbox/bank' } as const;
const noCallStacks = new URL('../src/worker/withoutCallStacks.js', import.meta.url);
const worker = { flags: [`--import=${noCallStacks.href}`] };

async function startParts(
  options: StackOptions,
  claim: Claim,
  parts: Part[],
  stop: () => Promise<void>,
): Promise<Stack> {
  const { directory } = options;
  const config = readStackConfig(process.env);
  const ports = await choosePorts(options.ports, config);
  const starter = new Starter(directory, claim, parts, options.onProgress);
  const [databaseUrl, temporalAddress] = await allStarted([
    config.DATABASE_URL ?? starter.postgres(ports.postgres),
    config.TEMPORAL_ADDRESS ?? starter.temporal(ports, config),
  ]);
  const secrets = await readOrCreateSecrets(join(directory, 'secrets.json'));
  const { seed, logins, operatorKey } = await prepareDatabase(databaseUrl, directory, config);

  const hurried = rehearsalOf(options);
  const apiUrl = `http://127.0.0.1:${ports.api}`;
  const bankUrl = `http://127.0.0.1:${ports.bank}`;
  const connections = {
    TEMPORAL_ADDRESS: temporalAddress,
    TEMPORAL_NAMESPACE: config.TEMPORAL_NAMESPACE,
    MASTER_KEY: secrets.masterKey,
    WEBHOOK_SIGNING_KEYS: secrets.webhookSigningKey,
    // On a local stack, receivers run on this machine without TLS.
    WEBHOOKS_ALLOW_INSECURE: 'true',
  };
  const workerSettings = {
    ...connections,
    DATABASE_URL: logins.worker,
    SANDBOX_BANK_URL: bankUrl,
    SANDBOX_BANK_TOKEN: secrets.bankToken,
    ...ratesOf(config),
    ...hurried.worker,
  };
  const apiSettings = {
    ...connections,
    DATABASE_URL: logins.api,
    API_PORT: String(ports.api),
    METRICS_PORT: String(ports.metrics),
    SANDBOX_BANK_CALLBACK_SECRET: secrets.callbackSecret,
    FINGERPRINT_SECRET: secrets.fingerprintSecret,
    ...limitsOf(config),
  };
  const bankSettings = {
    BANK_PORT: String(ports.bank),
    BANK_JOURNAL: join(directory, 'bank-journal.jsonl'),
    BANK_API_TOKEN: secrets.bankToken,
    BANK_CALLBACK_URL: `${apiUrl}/rails/sandbox/callbacks`,
    BANK_CALLBACK_SECRET: secrets.callbackSecret,
    ...hurried.bank,
  };
  await allStarted([
    starter.node('sandbox-bank', bankSettings, bank),
    starter.node('worker', workerSettings, worker),
    starter.node('batch-worker', workerSettings, batchWorker),
    starter.node('api', apiSettings, api),
  ]);

  const description = {
    api_url: apiUrl,
    api_key: seed.apiKey,
    ...addressesOf(ports, config),
    temporal_address: temporalAddress,
    database_url: databaseUrl,
    operator_key: operatorKey,
    sandbox_bank_url: bankUrl,
    pids: { supervisor: process.pid, ...Object.fromEntries(parts.map((p) => [p.name, p.pid])) },
  } satisfies StackDescription;
  await writeJson(join(directory, 'stack.json'), description);
  return { description, seed, broken: firstToEnd(parts), stop };
}

/** With these times every kind of stuck payout occurs within four minutes; normal callbacks are in time. */
const rehearsal = {
  worker: { SANDBOX_KEY_RETENTION_SECONDS: '120', SANDBOX_SETTLE_WITHIN_SECONDS: '120' },
  bank: { BANK_KEY_RETENTION_SECONDS: '120' },
} as const;

const rehearsalOf = ({ isRehearsal }: StackOptions) =>
  isRehearsal === true ? rehearsal : { worker: {}, bank: {} };

function ratesOf(config: StackConfig): Readonly<Record<string, string>> {
  return {
    RATE_SOURCE: config.RATE_SOURCE,
    RATE_TABLE_URL: config.RATE_TABLE_URL,
    RATE_TABLE_PUBLIC_KEY: config.RATE_TABLE_PUBLIC_KEY,
  };
}

function limitsOf(config: StackConfig): Readonly<Record<string, string>> {
  return {
    RATE_LIMIT_PER_SECOND: String(config.RATE_LIMIT_PER_SECOND),
    RATE_LIMIT_BURST: String(config.RATE_LIMIT_BURST),
    IN_FLIGHT_LIMIT: String(config.IN_FLIGHT_LIMIT),
    ITEM_LIMIT_PER_SECOND: String(config.ITEM_LIMIT_PER_SECOND),
  };
}

function firstToEnd(parts: readonly Part[]) {
  return Promise.race(parts.map(async (part) => ({ part: part.name, exit: await part.exited })));
}

/** URLs for people: metrics, and the Temporal UI if this stack runs its own. */
function addressesOf(ports: StackPorts, config: StackConfig) {
  const ui = `http://127.0.0.1:${ports.temporalUi}`;
  return {
    metrics_url: `http://127.0.0.1:${ports.metrics}/metrics`,
    temporal_ui_url: config.TEMPORAL_ADDRESS === undefined ? ui : null,
  };
}

/** Waits for all even if one fails, so that `parts` is complete when the caller stops them. */
async function allStarted<T extends readonly unknown[]>(starting: readonly [...T]) {
  await Promise.allSettled(starting);
  return Promise.all(starting);
}

type NodeOptions = {
  /** The script's folder, by default `src/` and the part's name. */
  readonly folder?: string;
  readonly args?: readonly string[];
  /** Options for Node.js itself. */
  readonly flags?: readonly string[];
};

/** Starts the parts of one stack, with their output in `logs/`. */
class Starter {
  readonly #directory: string;
  readonly #claim: Claim;
  readonly #parts: Part[];
  readonly #onProgress: (line: string) => void;

  constructor(directory: string, claim: Claim, parts: Part[], onProgress: (line: string) => void) {
    this.#directory = directory;
    this.#claim = claim;
    this.#parts = parts;
    this.#onProgress = onProgress;
    mkdirSync(join(directory, 'logs'), { recursive: true });
  }

  async postgres(port: number): Promise<string> {
    const dataDir = join(this.#directory, 'postgres');
    const owner = await ownerFor(join(dataDir, 'cluster'));
    // Started by root, PostgreSQL runs as another user, who needs access. Root still has access, too.
    if (owner !== undefined && this.#claim.isPrivate) {
      await chown(this.#directory, owner.uid, owner.gid);
    }
    const part = await startPostgres({
      dataDir,
      port,
      database: 'corridor',
      ...this.#watch('postgres'),
    });
    this.#started(part);
    return part.databaseUrl;
  }

  async temporal(ports: StackPorts, config: StackConfig): Promise<string> {
    const binary = await findTemporalCli({
      ...(config.TEMPORAL_CLI_PATH === undefined ? {} : { explicitPath: config.TEMPORAL_CLI_PATH }),
      cacheDir: cacheDirectory(config),
      path: config.PATH,
      onProgress: this.#onProgress,
    });
    const part = await startTemporalDevServer({
      binary,
      port: ports.temporal,
      uiPort: ports.temporalUi,
      dbFile: join(this.#directory, 'temporal.sqlite'),
      namespace: config.TEMPORAL_NAMESPACE,
      ...this.#watch('temporal'),
    });
    this.#started(part);
    return `127.0.0.1:${ports.temporal}`;
  }

  async node(
    name: string,
    env: Readonly<Record<string, string>>,
    { folder = `src/${name}`, args = [], flags = [] }: NodeOptions = {},
  ): Promise<void> {
    const script = fileURLToPath(new URL(`../${folder}/main.js`, import.meta.url));
    const part = await startProcess({
      name,
      command: process.execPath,
      args: [...flags, '--enable-source-maps', script, ...args],
      env: { ...process.env, ...env },
      ipc: true,
      ready: { line: readyUrl },
      // The worker waits up to 30 s for Temporal to accept its search attributes.
      readyTimeoutMs: 45_000,
      stopTimeoutMs: 30_000,
      ...this.#watch(name),
    });
    this.#started(part);
  }

  #started(part: Part): void {
    this.#parts.push(part);
    this.#onProgress(`${part.name} is up (pid ${part.pid})`);
  }

  #watch(name: string) {
    const file = join(this.#directory, 'logs', `${name}.log`);
    return {
      onLog: (line: string) => appendFileSync(file, `${line}\n`),
      onSpawn: this.#claim.record,
    };
  }
}

/** Returns the URL from the log line with which a part reports that it is `ready` or `listening`. */
function readyUrl(line: string): string | undefined {
  return /"(?:ready|listening)":"(http[^"]+)"/.exec(line)?.[1];
}

async function choosePorts(wished: StackPorts, config: StackConfig): Promise<StackPorts> {
  const ownsTemporal = config.TEMPORAL_ADDRESS === undefined;
  return {
    api: await choosePort(wished.api, '--api-port'),
    metrics: await choosePort(wished.metrics, '--metrics-port'),
    temporal: ownsTemporal ? await choosePort(wished.temporal, '--temporal-port') : 0,
    temporalUi: ownsTemporal ? await choosePort(wished.temporalUi, '--temporal-ui-port') : 0,
    postgres:
      config.DATABASE_URL === undefined ? await choosePort(wished.postgres, '--postgres-port') : 0,
    bank: await choosePort(wished.bank, '--bank-port'),
  };
}

/** The operator whose key is in stack.json. Each start creates a new key. */
const developer = 'developer';

/**
 * Migrates the database, then sets up the rate source, the processes' logins and the account for the curl
 * examples.
 */
async function prepareDatabase(url: string, directory: string, config: StackConfig) {
  const database = connectDatabase({ url, poolSize: 2, applicationName: 'corridor-cli' });
  try {
    await migrate(database);
    const { RATE_SOURCE: source } = config;
    // In a database that this stack does not own, the operators decide on permissions and the rate
    // source.
    const isOwn = config.DATABASE_URL === undefined;
    const operatorKey = await transaction(database, async (sql) =>
      isOwn || (await countOtherAdmins(sql, developer)) === 0
        ? enrollAdmin(sql, developer, 'corridor start')
        : undefined,
    );
    if (isOwn && operatorKey !== undefined) {
      const decision = { operatorKey, reason: `RATE_SOURCE=${source}` };
      await pinProvider(database, rateProviderOf(source), decision);
    }
    const logins = await prepareLogins(database, url, config);
    const seed = await seedAccount(database, join(directory, 'seed.json'));
    return { seed, logins, operatorKey };
  } finally {
    await database.end({ timeout: 5 });
  }
}

/** Returns the configured logins, or creates them with new passwords that only this start knows. */
async function prepareLogins(
  database: Database,
  url: string,
  { API_DATABASE_URL: api, WORKER_DATABASE_URL: worker }: StackConfig,
): Promise<Pick<DatabaseUrls, 'api' | 'worker'>> {
  if (api !== undefined && worker !== undefined) return { api, worker };
  const made = loginUrls(url, randomSecret);
  // The other logins may be those of people: their passwords stay.
  await allowLogins(database, { api: made.api, worker: made.worker });
  return made;
}

const randomSecret = () => randomBytes(24).toString('base64url');

/** The defaults create secrets that a file of an earlier build does not have yet. */
const secretsFile = z.object({
  bankToken: z.string().default(randomSecret),
  callbackSecret: z.string().default(randomSecret),
  fingerprintSecret: z.string().default(randomSecret),
  masterKey: z.string().default(() => randomBytes(32).toString('hex')),
  webhookSigningKey: z.string().default(() => `whsk_${randomBytes(32).toString('base64')}`),
});

/** Keeps the stack's secrets: with new ones, replays would mismatch and details could not be decrypted. */
async function readOrCreateSecrets(file: string): Promise<z.infer<typeof secretsFile>> {
  const secrets = (await readJson(file, secretsFile)) ?? secretsFile.parse({});
  await writeJson(file, secrets);
  return secrets;
}

/** Deletes everything a stack keeps, except the lock that this process holds. */
function emptyDirectory(directory: string): void {
  const kept = ['postgres', 'logs', 'secrets.json', 'seed.json', 'bank-journal.jsonl'];
  const temporal = ['temporal.sqlite', 'temporal.sqlite-wal', 'temporal.sqlite-shm'];
  for (const name of [...kept, ...temporal]) {
    rmSync(join(directory, name), { recursive: true, force: true });
  }
}

/** The cache folder for Temporal's binaries, shared by all clones of the repository. */
function cacheDirectory({ XDG_CACHE_HOME: cache }: StackConfig): string {
  return join(cache ?? join(homedir(), '.cache'), 'corridor');
}
