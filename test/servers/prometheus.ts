import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Time limit for a download: 20 MB, and up to 20 MB of package lists on a machine that has none. */
const downloadLimitMs = 110_000;

/**
 * Returns the path of a program of Prometheus: the one on the search path, or the one in Debian's package
 * `prometheus`, which is downloaded once and unpacked into the cache without being installed.
 *
 * @throws Error when there is none and apt-get cannot download it
 */
export async function findPrometheus(program: 'prometheus' | 'promtool'): Promise<string> {
  const isInstalled = await run(program, ['--version']).then(
    () => true,
    () => false,
  );
  if (isInstalled) return program;
  const cache = join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'corridor');
  const folder = join(cache, 'prometheus');
  if (!existsSync(folder)) {
    await unpackPackage(cache, folder).catch((error: unknown) => {
      throw new Error(`Install Prometheus: ${program} is not on the search path.`, {
        cause: error,
      });
    });
  }
  return join(folder, 'usr/bin', program);
}

async function unpackPackage(cache: string, folder: string): Promise<void> {
  await mkdir(cache, { recursive: true });
  const work = await mkdtemp(`${folder}-`);
  const options = { cwd: work, timeout: downloadLimitMs, killSignal: 'SIGKILL' } as const;
  // Lists in the work folder: the user may not be allowed to change those of the system.
  const own = ['-o', `Dir::State::lists=${work}/lists`, '-o', `Dir::Cache=${work}/cache`];
  const user = ['-o', 'APT::Sandbox::User=root'];
  try {
    await run('apt-get', [...user, 'download', 'prometheus'], options).catch(async () => {
      for (const name of ['lists/partial', 'cache/archives/partial'])
        await mkdir(join(work, name), { recursive: true });
      await run('apt-get', [...user, ...own, 'update'], options);
      await run('apt-get', [...user, ...own, 'download', 'prometheus'], options);
    });
    const [archive = ''] = (await readdir(work)).filter((name) => name.endsWith('.deb'));
    await run('dpkg-deb', ['--extract', archive, 'unpacked'], options);
    await rename(join(work, 'unpacked'), folder).catch((error: unknown) => {
      // Another test file may have been faster.
      if (!existsSync(folder)) throw error;
    });
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}
