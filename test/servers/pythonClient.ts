import { execFile } from 'node:child_process';
import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { installedOnce } from './installedOnce.js';

const run = promisify(execFile);
const source = fileURLToPath(new URL('../../clients/python/', import.meta.url));

/**
 * The path of a Python interpreter with the client installed, in a virtual environment made for the
 * run. Its dependencies are downloaded in the versions of requirements-test.txt.
 *
 * @throws Error that names what is missing when there is no Python 3.10 with venv
 */
export async function pythonClient(): Promise<string> {
  return pythonOf(await installedOnce('python', install));
}

const pythonOf = (folder: string) => join(folder, 'venv/bin/python');

async function install(folder: string): Promise<void> {
  const isNewEnough = 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))';
  await run('python3', ['-c', isNewEnough]).catch((cause: unknown) => {
    throw new Error(
      'The tests of the Python client need python3 3.10 or newer with venv on the path ' +
        '(on Debian and Ubuntu: apt-get install python3-venv).',
      { cause },
    );
  });
  await run('python3', ['-m', 'venv', join(folder, 'venv')]);
  // Without compiling: it would double the installation time, and Python compiles modules on import.
  const flags = ['--quiet', '--no-input', '--no-compile'];
  const pip = (...args: readonly string[]) =>
    run(pythonOf(folder), ['-m', 'pip', 'install', ...flags, ...args]);
  await pip('--requirement', join(source, 'requirements-test.txt'));
  // The build runs in a copy, so that it leaves no files in the source folder.
  const copy = join(folder, 'source');
  await cp(source, copy, { recursive: true });
  await pip('--no-deps', '--no-build-isolation', copy);
}
