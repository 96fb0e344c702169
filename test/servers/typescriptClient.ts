import { execFile } from 'node:child_process';
import { cp, mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { installedOnce } from './installedOnce.js';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../../', import.meta.url));
const source = join(root, 'clients/typescript');

/**
 * Returns a folder in which the packed client is installed as an integrator installs it. Programs
 * written into the folder can import `@corridor/client`.
 */
export async function typescriptClient(): Promise<string> {
  return join(await installedOnce('typescript', install), 'program');
}

async function install(folder: string): Promise<void> {
  const copy = join(folder, 'package');
  const isOwn = (path: string) => !/\/(node_modules|dist)$/.test(path);
  await cp(source, copy, { recursive: true, filter: isOwn });
  await symlink(join(root, 'node_modules'), join(copy, 'node_modules'));
  await compile(copy, ['-p', 'tsconfig.json']);
  await run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder], { cwd: copy });
  const program = join(folder, 'program');
  await mkdir(program);
  await writeFile(join(program, 'package.json'), '{"type":"module","private":true}');
  // Offline, because the client has no dependencies.
  const packed = join(folder, 'corridor-client-0.1.0.tgz');
  const flags = ['--offline', '--ignore-scripts', '--no-audit', '--no-fund'];
  await run('npm', ['install', ...flags, packed], { cwd: program });
}

/** Runs the project's compiler in a folder. Rejects with the compiler's output as the message. */
export async function compile(folder: string, args: readonly string[]): Promise<void> {
  const compiler = join(root, 'node_modules/typescript/lib/tsc.js');
  const running = run(process.execPath, [compiler, ...args], { cwd: folder });
  await running.catch((failure: unknown) => {
    const output =
      failure instanceof Error && 'stdout' in failure ? String(failure.stdout) : String(failure);
    throw new Error(output);
  });
}
