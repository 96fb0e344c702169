import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { type Part, sendSignal, startProcess } from '../../sandbox/stack/process.js';
import { readJson } from '../../src/cli/jsonFile.js';
import { readJournal } from '../assertions/bankJournal.js';
import { eventually } from '../assertions/eventually.js';
import { type ApiClient, createClient } from '../fixtures/client.js';
import { killStrayProcesses, type StrayProcess, strayProcesses } from './strayProcesses.js';

const cli = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));

/** All parts start in about 3 s, but a Temporal server that has to be built first takes minutes. */
const startLimitMs = 90_000;
/** Each part has its own stop limit; together they have never taken more than 10 s. */
const stopLimitMs = 60_000;

const portFlags = ['api', 'metrics', 'temporal', 'temporal-ui', 'postgres', 'bank'] as const;
const anyPorts = portFlags.flatMap((name) => [`--${name}-port`, '0']);

/** Exactly the documented members of `stack.json`. */
const descriptionShape = z.strictObject({
  api_url: z.url(),
  api_key: z.string(),
  metrics_url: z.url(),
  temporal_address: z.string(),
  temporal_ui_url: z.url(),
  operator_key: z.string().regex(/^cop_/),
  database_url: z.string(),
  sandbox_bank_url: z.url(),
  pids: z.strictObject({
    supervisor: z.int(),
    postgres: z.int(),
    temporal: z.int(),
    'sandbox-bank': z.int(),
    worker: z.int(),
    'batch-worker': z.int(),
    api: z.int(),
  }),
});

export type Finished = {
  readonly code: number | string;
  readonly stdout: string;
  readonly stderr: string;
};

export type RunningStack = {
  readonly part: Part;
  readonly description: z.infer<typeof descriptionShape>;
  readonly client: ApiClient;
  /** Everything printed so far, including standard error. */
  readonly output: () => string;
};

/** A data folder with the stacks that a test runs on it, one after another. */
export type StackHome = {
  readonly directory: string;
  /** Runs `corridor start` on this data with free ports; resolves when stack.json exists. */
  readonly start: (...flags: readonly string[]) => Promise<RunningStack>;
  /** Starts a command on this data; resolves when it has printed a matching line. */
  readonly begin: (command: string, line: RegExp) => Promise<Part>;
  /** Runs a command on this data with free ports, until it exits. */
  readonly run: (command: string, ...flags: readonly string[]) => Promise<Finished>;
  /** Runs `corridor` with only these arguments, in the data folder. */
  readonly runBare: (...args: readonly string[]) => Promise<Finished>;
  /** The keys of the transfers that the bank has really made, in order. */
  readonly transfers: () => Promise<readonly string[]>;
  readonly hasDescription: () => boolean;
  /** The fatal lines in the logs of the parts. */
  readonly fatalLines: () => Promise<readonly string[]>;
  /** Every running process that belongs to this home. */
  readonly processes: () => readonly StrayProcess[];
  /** Kills any process that is still running, whatever the test's outcome, and removes the data. */
  readonly remove: () => Promise<void>;
};

export async function createStackHome(): Promise<StackHome> {
  const directory = await mkdtemp(join(tmpdir(), 'corridor-e2e-'));
  const mark = randomUUID();
  const env = { ...ownPartsOnly(process.env), CORRIDOR_TEST_MARK: mark };
  const descriptionFile = join(directory, 'stack.json');
  const journal = () => readJournal(join(directory, 'bank-journal.jsonl'));

  async function start(...flags: readonly string[]): Promise<RunningStack> {
    const lines: string[] = [];
    let pid = 0;
    const part = await startProcess({
      name: 'corridor',
      command: process.execPath,
      args: [cli, 'start', '--data', directory, ...anyPorts, ...flags],
      env,
      // A killed stack leaves its description behind, so the pid must be that of our process.
      ready: { probe: async () => (await describe(descriptionFile))?.pids.supervisor === pid },
      readyTimeoutMs: startLimitMs,
      stopTimeoutMs: stopLimitMs,
      onLog: (line) => lines.push(line),
      onSpawn: (spawned) => {
        pid = spawned;
      },
    });
    const description = await describe(descriptionFile);
    if (description === undefined) throw new Error('stack.json has vanished.');
    const client = createClient(description.api_url, description.api_key);
    return { part, description, client, output: () => lines.join('\n') };
  }

  return {
    directory,
    start,
    begin: (command, line) =>
      startProcess({
        name: command,
        command: process.execPath,
        args: [cli, command, '--data', directory],
        env,
        ready: { line: (text) => line.exec(text)?.[0] },
        readyTimeoutMs: startLimitMs,
        stopTimeoutMs: stopLimitMs,
        onLog: () => undefined,
      }),
    run: (command, ...flags) =>
      run([command, '--data', directory, ...anyPorts, ...flags], env, directory),
    runBare: (...args) => run(args, env, directory),
    transfers: async () => {
      const lines = await journal();
      return lines.flatMap((line) => (line.type === 'transfer' ? [line.key ?? ''] : []));
    },
    fatalLines: async () => {
      const names = ['api', 'worker', 'batch-worker', 'sandbox-bank'];
      const logs = await Promise.all(
        names.map((name) => readFile(join(directory, 'logs', `${name}.log`), 'utf8')),
      );
      return logs.flatMap((log) => log.split('\n').filter((line) => line.includes('"fatal"')));
    },
    hasDescription: () => existsSync(descriptionFile),
    processes: () => strayProcesses(mark, directory),
    remove: async () => {
      killStrayProcesses(mark, directory);
      await eventually('every process of the stack has ended', 5_000, () =>
        strayProcesses(mark, directory).length === 0 ? true : undefined,
      );
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** Kills a process as a crash would. */
export function crash(pid: number): void {
  sendSignal(pid, 'SIGKILL');
}

/** Without these variables every part is started here: the tests kill all parts, so none may be shared. */
function ownPartsOnly(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const { DATABASE_URL: _database, TEMPORAL_ADDRESS: _temporal, ...rest } = env;
  return rest;
}

function run(args: readonly string[], env: NodeJS.ProcessEnv, cwd: string): Promise<Finished> {
  const options = { env, cwd, timeout: startLimitMs, killSignal: 'SIGKILL' as const };
  return new Promise((resolve) => {
    execFile(process.execPath, [cli, ...args], options, (error, stdout, stderr) => {
      const code = error === null ? 0 : (error.code ?? error.signal ?? 'unknown');
      resolve({ code, stdout, stderr });
    });
  });
}

/** Reads stack.json. A stack that starts deletes the one of a killed stack before it writes its own. */
function describe(file: string): Promise<RunningStack['description'] | undefined> {
  return readJson(file, descriptionShape);
}
