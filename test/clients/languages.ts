import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { type Part, startProcess } from '../../sandbox/stack/process.js';
import { blocksOf } from '../fixtures/fencedBlocks.js';
import { pythonClient } from '../servers/pythonClient.js';
import { compile, typescriptClient } from '../servers/typescriptClient.js';

const programs = fileURLToPath(new URL('./programs/', import.meta.url));
const root = fileURLToPath(new URL('../../', import.meta.url));

/** The API address and the key that a program uses. */
export type Caller = { readonly apiUrl: string; readonly apiKey: string };

/** A client library in one language, and what an integrator does with it. */
export type Language = {
  readonly name: 'TypeScript' | 'Python';
  /** Installs the client and checks the types of every program that uses it. */
  readonly prepare: () => Promise<void>;
  /** Runs a program until it exits; returns the JSON in the last line of its output. */
  readonly run: (program: string, caller: Caller, input?: unknown) => Promise<unknown>;
  /** Starts the README's code as one program, which is ready when it listens for webhooks. */
  readonly startReadme: (caller: Caller, watch: ReadmeWatch) => Promise<Part>;
};

type ReadmeWatch = { readonly port: number; readonly onLine: (line: string) => void };

/** Compiler flags that a careful integrator would use, without this project's own configuration. */
const strict = [
  ...['--strict', '--noUncheckedIndexedAccess', '--exactOptionalPropertyTypes'],
  ...['--ignoreConfig', '--target', 'es2023', '--module', 'nodenext'],
];
const node = [
  '--lib',
  'es2023',
  '--types',
  'node',
  '--typeRoots',
  join(root, 'node_modules/@types'),
];
const browser = ['--lib', 'es2023,dom,dom.asynciterable', '--types', ''];

const typescript: Language = {
  name: 'TypeScript',
  prepare: async () => {
    const folder = await typescriptClient();
    await cp(programs, folder, { recursive: true });
    await writeFile(join(folder, 'readme.ts'), await readmeOf('typescript', 'ts'));
    await compile(folder, [...strict, ...node, ...(await sourcesIn(folder, '.ts'))]);
    // In runtimes other than Node, such as browsers, the types come from other libraries.
    await compile(folder, [...strict, ...browser, '--noEmit', 'journey.ts']);
  },
  run: async (program, caller, input) => {
    const file = join(await typescriptClient(), `${program}.js`);
    return outputOf(process.execPath, [file], caller, input);
  },
  startReadme: async (caller, watch) => {
    const file = join(await typescriptClient(), 'readme.js');
    return startReadme(process.execPath, file, caller, watch);
  },
};

export const python: Language = {
  name: 'Python',
  prepare: async () => {
    const interpreter = await pythonClient();
    const files = (await sourcesIn(programs, '.py')).map((file) => join(programs, file));
    await writeFile(pythonReadme(interpreter), await readmeOf('python', 'python'));
    const cache = ['--cache-dir', join(interpreter, '../../../mypy')];
    await finished(interpreter, ['-m', 'mypy', '--strict', ...cache, '-p', 'corridor']);
    // Each file is a separate script, and its name need not be a valid module name.
    const checks = ['-m', 'mypy', '--strict', ...cache, '--scripts-are-modules'];
    await finished(interpreter, [...checks, ...files, pythonReadme(interpreter)]);
  },
  run: async (program, caller, input) =>
    outputOf(await pythonClient(), [join(programs, `${program}.py`)], caller, input),
  startReadme: async (caller, watch) => {
    const interpreter = await pythonClient();
    return startReadme(interpreter, pythonReadme(interpreter), caller, watch);
  },
};

const pythonReadme = (interpreter: string) => join(interpreter, '../../../readme.py');

export const languages = [typescript, python] as const;

/** Joins the code blocks of a client's README. */
async function readmeOf(client: string, fence: string): Promise<string> {
  const readme = await readFile(join(root, 'clients', client, 'README.md'), 'utf8');
  return blocksOf(readme, fence).join('\n');
}

function startReadme(
  command: string,
  file: string,
  caller: Caller,
  { port, onLine }: ReadmeWatch,
): Promise<Part> {
  return startProcess({
    name: 'readme',
    command,
    args: [file],
    env: { ...environmentOf(caller), PORT: String(port), PYTHONUNBUFFERED: '1' },
    ready: { line: (line) => /Listening/.exec(line)?.[0] },
    readyTimeoutMs: 60_000,
    onLog: onLine,
  });
}

function environmentOf({ apiUrl, apiKey }: Caller): NodeJS.ProcessEnv {
  return { ...process.env, CORRIDOR_API_URL: apiUrl, CORRIDOR_API_KEY: apiKey };
}

async function sourcesIn(folder: string, ending: string): Promise<readonly string[]> {
  return (await readdir(folder)).filter((file) => file.endsWith(ending));
}

async function outputOf(
  command: string,
  args: readonly string[],
  caller: Caller,
  input: unknown,
): Promise<unknown> {
  const env = environmentOf(caller);
  const output = await finished(command, args, { env, input: JSON.stringify(input ?? null) });
  return JSON.parse(output.trim().split('\n').at(-1) ?? '');
}

/** Runs a process until it exits; rejects with its whole output if the exit code is not 0. */
async function finished(
  command: string,
  args: readonly string[],
  { env = process.env, input = '' }: { env?: NodeJS.ProcessEnv; input?: string } = {},
): Promise<string> {
  const child = spawn(command, [...args], { env });
  const closed = once(child, 'close');
  child.stdin.end(input);
  const [output, errors, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    closed,
  ]);
  if (code === 0) return output;
  throw new Error(`${command} ${args.join(' ')} ended with ${code}:\n${output}${errors}`);
}
