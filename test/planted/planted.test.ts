import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { z } from 'zod';
import { type Bug, bugs, type Catcher } from './bugs.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
/** The folders and files that the catching tests need. The processes of `dist/` are not needed. */
const copied = ['src', 'sandbox', 'test', 'docs', 'package.json', 'tsconfig.json'];

/** Time limit for one run. The longest takes 15 s on an idle machine, most of it in tests. */
const runLimitMs = 150_000;

/** The folder of all copies. */
let home: string;
/** The copy without a bug. */
const original = 'original';
/** How often each bug's text occurs in its file, and the results in its copy. */
const places = new Map<Bug, number>();
const ran = new Map<string, Ran>();

const catchers = new Map(bugs.map(({ caughtBy }) => [caughtBy.test, caughtBy]));
const copyOf = (bug: Bug) => `bug-${bugs.indexOf(bug)}`;

beforeAll(
  async () => {
    home = await mkdtemp(join(tmpdir(), 'corridor-planted-'));
    await symlink(join(root, 'node_modules'), join(home, 'node_modules'));
    for (const name of copied)
      await cp(join(root, name), join(home, original, name), { recursive: true });
    for (const bug of bugs) places.set(bug, await plant(bug));
    const planted = bugs.filter((bug) => places.get(bug) === 1);
    // One run for all bugs, as starting takes longer than the tests. Each copy's modules have other paths, so
    // one process can load them all. The schema is made from one copy, so a bug in it needs another run.
    const isOfSchema = ({ file }: Bug) => file.startsWith('src/db/migrations/');
    const plantedIn = (bug: Bug) => ({ copy: copyOf(bug), caughtBy: bug.caughtBy });
    await run([
      ...[...catchers.values()].map((caughtBy) => ({ copy: original, caughtBy })),
      ...planted.filter((bug) => !isOfSchema(bug)).map(plantedIn),
    ]);
    for (const bug of planted.filter(isOfSchema)) await run([plantedIn(bug)]);
  },
  2 * runLimitMs + 30_000,
);
afterAll(() => rm(home, { recursive: true, force: true }));

/** Makes a copy with the bug in it, if its text occurs exactly once. Returns how often it occurs. */
async function plant(bug: Bug): Promise<number> {
  const source = await readFile(join(home, original, bug.file), 'utf8');
  const count = source.split(bug.find).length - 1;
  if (count !== 1) return count;
  // Hard links, as the copies differ in one file each; that file is replaced, not written to.
  await promisify(execFile)('cp', ['-al', join(home, original), join(home, copyOf(bug))]);
  const file = join(home, copyOf(bug), bug.file);
  await writeFile(
    `${file}.new`,
    source.replace(bug.find, () => bug.replace),
  );
  await rename(`${file}.new`, file);
  return count;
}

const report = z.object({
  testResults: z.array(
    z.object({
      name: z.string(),
      message: z.string(),
      assertionResults: z.array(
        z.object({
          fullName: z.string(),
          status: z.string(),
          failureMessages: z.array(z.string()),
        }),
      ),
    }),
  ),
});

type Results = z.infer<typeof report>['testResults'][number]['assertionResults'];

/** The results in a copy, and why files of it could not be loaded. */
type Ran = { readonly results: Results; readonly messages: readonly string[] };

type Watch = { readonly copy: string; readonly caughtBy: Catcher };

/** Runs these tests in their copies, and notes the results. The schema is that of the first copy. */
async function run(watched: readonly Watch[]): Promise<void> {
  const [first] = watched;
  if (first === undefined) return;
  const outputFile = join(home, 'report.json');
  await rm(outputFile, { force: true });
  const config = join(home, 'vitest.config.mjs');
  await writeFile(config, `export default ${JSON.stringify({ test: optionsOf(first.copy) })}`);
  const files = watched.map(({ copy, caughtBy }) => join(home, copy, caughtBy.file));
  const names = watched.map(({ caughtBy }) => caughtBy.test).join('|');
  const output = await finished([
    ...['run', '--config', config, ...new Set(files), '-t', names],
    ...['--reporter=json', `--outputFile=${outputFile}`],
  ]);
  const text = await readFile(outputFile, 'utf8').catch(() => {
    throw new Error(`vitest has left no report:\n${output}`);
  });
  const { testResults } = report.parse(JSON.parse(text));
  for (const { copy } of watched) {
    const its = testResults.filter(({ name }) => name.startsWith(join(home, copy) + sep));
    ran.set(copy, {
      results: its.flatMap(({ assertionResults }) => assertionResults),
      messages: its.map(({ message }) => message).filter((message) => message !== ''),
    });
  }
}

const optionsOf = (copy: string) => ({
  root: home,
  globalSetup: [join(home, copy, 'test/servers/globalPostgres.ts')],
  // One process for all copies, so that packages are loaded once.
  ...{ pool: 'forks', maxWorkers: 1, isolate: false },
  ...{ testTimeout: 60_000, hookTimeout: 60_000 },
});

/** Returns the output of vitest in the copies, which shares only PostgreSQL with this run. */
function finished(args: readonly string[]): Promise<string> {
  // The variables that this vitest sets for its own workers must not reach the other one.
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST'));
  const env = { ...Object.fromEntries(own), DATABASE_URL: inject('postgresUrl') };
  const vitest = join(home, 'node_modules/vitest/vitest.mjs');
  return new Promise((resolve, reject) => {
    execFile(
      process.execPath,
      [vitest, ...args],
      { cwd: home, env, timeout: runLimitMs, maxBuffer: 64 * 1024 * 1024 },
      (error, stdout, stderr) => {
        if (error?.killed === true) reject(new Error(`No end in ${runLimitMs} ms: ${stdout}`));
        else resolve(`${stdout}${stderr}`);
      },
    );
  });
}

/** The results of one test in a copy, and why files of the copy could not be loaded. */
function resultsOf(copy: string, { test }: Catcher): Ran {
  const { results = [], messages = [`Nothing ran in ${copy}.`] } = ran.get(copy) ?? {};
  return { results: results.filter(({ fullName }) => fullName.includes(test)), messages };
}

describe('without a bug it passes', () => {
  it.each([...catchers])('%s', (_test, caughtBy) => {
    const { results, messages } = resultsOf(original, caughtBy);
    expect(messages).toEqual([]);
    expect(results).not.toEqual([]);
    expect(results.filter(({ status }) => status !== 'passed')).toEqual([]);
  });
});

describe('it is caught that', () => {
  it.each(bugs.map((bug) => [bug.name, bug] as const))('%s', (_name, bug) => {
    expect(places.get(bug), `${bug.file} has to contain exactly once: ${bug.find}`).toBe(1);
    const { results, messages } = resultsOf(copyOf(bug), bug.caughtBy);
    // Any other error would mean that the patch does not fit, not that the bug was caught.
    const failures = [...messages, ...results.flatMap(({ failureMessages }) => failureMessages)];
    expect(failures).toContainEqual(expect.stringMatching(/^AssertionError/));
  });
});
