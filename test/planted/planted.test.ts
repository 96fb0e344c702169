import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { z } from 'zod';
import { bugs, type Catcher } from './bugs.js';

const root = fileURLToPath(new URL('../../', import.meta.url));
/** The folders and files that the catching tests need. The processes of `dist/` are not needed. */
const copied = [
  'src',
  'sandbox',
  'test',
  'docs',
  'package.json',
  'tsconfig.json',
  'vitest.config.ts',
];

/** Time limit for one test. It takes some seconds, mostly to start; the rest allows for a busy machine. */
const runLimitMs = 90_000;

let copy: string;

beforeAll(async () => {
  copy = await mkdtemp(join(tmpdir(), 'corridor-planted-'));
  for (const name of copied) await cp(join(root, name), join(copy, name), { recursive: true });
  await symlink(join(root, 'node_modules'), join(copy, 'node_modules'));
});
afterAll(() => rm(copy, { recursive: true, force: true }));

const report = z.object({
  testResults: z.array(
    z.object({
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

type Ran = { readonly passed: readonly string[]; readonly failures: readonly string[] };

/** Runs these tests in the copy. A file that cannot be loaded yields neither passes nor failures. */
async function run(catchers: readonly Catcher[]): Promise<Ran> {
  const outputFile = join(copy, 'report.json');
  await rm(outputFile, { force: true });
  const projects = catchers.map(({ project }) => `--project=${project}`);
  const files = catchers.map(({ file }) => file);
  const names = catchers.map(({ test }) => test).join('|');
  const output = await finished([
    ...['run', ...new Set([...projects, ...files]), '-t', names],
    ...['--reporter=json', `--outputFile=${outputFile}`],
  ]);
  const text = await readFile(outputFile, 'utf8').catch(() => {
    throw new Error(`vitest has left no report:\n${output}`);
  });
  const { testResults } = report.parse(JSON.parse(text));
  const results = testResults.flatMap(({ assertionResults }) => assertionResults);
  return {
    passed: results.filter(({ status }) => status === 'passed').map(({ fullName }) => fullName),
    failures: [
      ...testResults.map(({ message }) => message).filter((message) => message !== ''),
      ...results.flatMap(({ failureMessages }) => failureMessages),
    ],
  };
}

/** Returns the output of vitest in the copy, which shares only PostgreSQL with this run. */
function finished(args: readonly string[]): Promise<string> {
  // The variables that this vitest sets for its own workers must not reach the other one.
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST'));
  const env = { ...Object.fromEntries(own), DATABASE_URL: inject('postgresUrl') };
  const vitest = join(copy, 'node_modules/vitest/vitest.mjs');
  return new Promise((resolve, reject) => {
    execFile(
      process.execPath,
      [vitest, ...args],
      { cwd: copy, env, timeout: runLimitMs, maxBuffer: 64 * 1024 * 1024 },
      (error, stdout, stderr) => {
        if (error?.killed === true) reject(new Error(`No end in ${runLimitMs} ms: ${stdout}`));
        else resolve(`${stdout}${stderr}`);
      },
    );
  });
}

const catchers = new Map(bugs.map(({ caughtBy }) => [caughtBy.test, caughtBy]));

// One run for all, as starting takes longer than the tests and the source stays the same.
describe('without a bug it passes', () => {
  let ran: Ran;
  beforeAll(async () => {
    ran = await run([...catchers.values()]);
  });

  it.each([...catchers.keys()])('%s', (test) => {
    expect(ran.failures).toEqual([]);
    expect(ran.passed.filter((name) => name.includes(test))).not.toEqual([]);
  });
});

describe('it is caught that', () => {
  it.each(bugs.map((bug) => [bug.name, bug] as const))('%s', async (_name, bug) => {
    const path = join(copy, bug.file);
    const source = await readFile(path, 'utf8');
    const places = source.split(bug.find).length - 1;
    expect(places, `${bug.file} has to contain exactly once: ${bug.find}`).toBe(1);
    await writeFile(
      path,
      source.replace(bug.find, () => bug.replace),
    );
    try {
      const { failures } = await run([bug.caughtBy]);
      // Any other error would mean that the patch does not fit, not that the bug was caught.
      expect(failures).toContainEqual(expect.stringMatching(/^AssertionError/));
    } finally {
      await writeFile(path, source);
    }
  });
});
