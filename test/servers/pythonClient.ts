import { execFile } from 'node:child_process';
import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { installedOnce } from './installedOnce.js';

const run = promisify(execFile);
const source = fileURLToPath(new URL('../../clients/python/', import.meta.url));

/**
 * The path of a Python that has the client installed, in a virtual environment of the run. The
 * packages that it needs are downloaded, in the versions of requirements-test.txt.
 *
 * @throws Error that says what is missing when there is no Python 3.10 with venv
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
  // Compiled is what is imported, when it is: all of it takes as long as the rest.
  const flags = ['--quiet', '--no-input', '--no-compile'];
  const pip = (...args: readonly string[]) =>
    run(pythonOf(folder), ['-m', 'pip', 'install', ...flags, ...args]);
  await pip('--requirement', join(source, 'requirements-test.txt'));
  // A copy, so that the build leaves nothing beside the source.
  const copy = join(folder, 'source');
  await cp(source, copy, { recursive: true });
  await pip('--no-deps', '--no-build-isolation', copy);
}
