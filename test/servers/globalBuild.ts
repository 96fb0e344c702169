import { readdir, stat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));

/**
 * Refuses to test an old build, because the processes under test run from `dist/`. The workflow
 * bundle is the last file that `npm run build` writes, so its time is the time of the build.
 *
 * @throws Error when there is no build, or a source file is newer than the build
 */
export async function setup(): Promise<void> {
  const builtMs = await modifiedMs(join(root, 'dist/src/workflows/bundle.js'));
  if (builtMs === undefined) throw new Error('There is no build in dist/: run npm run build.');
  const options = { recursive: true, withFileTypes: true } as const;
  const folders = ['src', 'sandbox'].map((folder) => readdir(join(root, folder), options));
  for (const entry of (await Promise.all(folders)).flat()) {
    if (!entry.isFile()) continue;
    const file = join(entry.parentPath, entry.name);
    if (((await modifiedMs(file)) ?? 0) > builtMs) {
      throw new Error(`dist/ is older than ${relative(root, file)}: run npm run build.`);
    }
  }
}

async function modifiedMs(file: string): Promise<number | undefined> {
  try {
    return (await stat(file)).mtimeMs;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}
