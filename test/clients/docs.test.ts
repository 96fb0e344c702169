import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { apiVersions, defaultApiVersion } from '../../src/contract/versions/index.js';
import {
  comparable,
  ellipsis,
  jsonIn,
  type Language,
  languages,
  outputsOf,
  programOf,
  type Snippet,
  snippetsOf,
} from '../fixtures/snippets.js';
import { createTestAccount } from '../servers/database.js';
import { pythonClient } from '../servers/pythonClient.js';
import { startSystem, type TestSystem } from '../servers/system.js';
import { compile, typescriptClient } from '../servers/typescriptClient.js';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../../', import.meta.url));
const folder = join(root, 'src/api/pages');
const names = (await readdir(folder)).filter((file) => file.endsWith('.md'));
const pages = new Map(
  await Promise.all(
    names.map(
      async (file) => [file, snippetsOf(await readFile(join(folder, file), 'utf8'))] as const,
    ),
  ),
);
/** Every page continues after these sections of the quickstart, as the quickstart's last paragraph says. */
const shared = ['Set up', 'Add a beneficiary'];
const quickstart = pages.get('quickstart.md') ?? [];

let system: TestSystem;
let programs: string;
let python: string;

beforeAll(async () => {
  [system, programs, python] = await Promise.all([
    startSystem(),
    typescriptClient(),
    pythonClient(),
  ]);
});
afterAll(() => system.stop());

const cases = [...pages].flatMap(([file, snippets]) =>
  languages.flatMap((language) =>
    snippets.some((snippet) => snippet.language === language) ? [[file, language] as const] : [],
  ),
);

describe.concurrent('every example in', () => {
  it.each(cases)('%s in %s runs, and prints what the page shows', async (file, language) => {
    const inLanguage = (all: readonly Snippet[]) => all.filter((one) => one.language === language);
    const before = inLanguage(quickstart.filter(({ section }) => shared.includes(section)));
    const own = inLanguage(pages.get(file) ?? []);
    const all = file === 'quickstart.md' ? own : [...before, ...own];
    const printed = await runProgram(file, language, programOf(language, all));
    const outputs = outputsOf(printed).slice(-own.length);
    expect(outputs).toHaveLength(own.length);
    for (const [index, { output, code }] of own.entries()) {
      if (output !== null) expectOutput(outputs[index] ?? '', output, code);
    }
  });
});

it('checks the types of every example in TypeScript', async () => {
  const files = (await readdir(programs)).filter((file) => file.startsWith('docs-'));
  const flags = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2024'];
  const modules = ['--module', 'nodenext', '--types', 'node'];
  const types = ['--typeRoots', join(root, 'node_modules/@types')];
  await compile(programs, [...flags, ...modules, ...types, ...files]);
  expect(files.length).toBeGreaterThan(5);
});

/** Runs a program as a reader of the page would: in a separate folder with a stack and a new account. */
async function runProgram(file: string, language: Language, text: string): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), 'corridor-docs-'));
  const { apiKey } = await createTestAccount(system.database);
  const description = { api_url: system.apiUrl, api_key: apiKey };
  await mkdir(join(home, '.corridor'));
  await writeFile(join(home, '.corridor/stack.json'), JSON.stringify(description));
  const program = join(
    language === 'ts' ? programs : home,
    `docs-${file.slice(0, -3)}.${language}`,
  );
  // Beside the other programs, a payout may take longer than on a reader's machine.
  await writeFile(program, text.replaceAll('wait=10', 'wait=30'));
  const env = { ...process.env, CORRIDOR_API_URL: system.apiUrl, CORRIDOR_API_KEY: apiKey };
  const command = { sh: 'bash', ts: process.execPath, py: python }[language];
  const flags = language === 'sh' ? ['-euo', 'pipefail'] : [];
  const { stdout } = await run(command, [...flags, program], { cwd: home, env, timeout: 110_000 });
  await rm(home, { recursive: true });
  return stdout;
}

function expectOutput(printed: string, shown: string, code: string): void {
  const [actual, expected] = [comparable(printed), comparable(filled(shown))];
  const [actualJson, expectedJson] = [jsonIn(actual), jsonIn(expected)];
  if (actualJson === null || expectedJson === null) {
    expect(actual, code).toBe(expected);
    return;
  }
  expect(actualJson.before, code).toBe(expectedJson.before);
  const value: unknown = JSON.parse(actualJson.json);
  const isPart = ellipsis.test(expectedJson.json);
  const whole: unknown = JSON.parse(expectedJson.json.replace(/,\n\s*…\n/, '\n'));
  if (isPart) expect(value, code).toMatchObject({ ...Object(whole) });
  else expect(value, code).toEqual(whole);
}

/** Fills in the page's placeholders. */
function filled(text: string): string {
  return text
    .replace('{{default version}}', defaultApiVersion)
    .replace('{{newest}}', apiVersions[0]);
}
