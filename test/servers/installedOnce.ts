import { watch } from 'node:fs';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { inject } from 'vitest';

/** Time limit for an installation. A virtual environment whose packages must be downloaded takes a minute. */
const installLimitMs = 110_000;

/**
 * Returns a folder that is filled once per run: the first test file that calls fills it, and the
 * others wait until it is complete.
 *
 * @throws Error when the folder cannot be filled, in every file that calls
 */
export async function installedOnce(
  name: string,
  install: (folder: string) => Promise<void>,
): Promise<string> {
  const clients = inject('clientsFolder');
  const folder = join(clients, name);
  const resultFile = `${folder}.done`;
  if (await createFolder(folder)) {
    const failure = await install(folder).then(
      () => '',
      (error: unknown) => (error instanceof Error ? error.message : String(error)),
    );
    // Written under another name and renamed, so that readers never see a partial file.
    await writeFile(`${resultFile}.new`, failure);
    await rename(`${resultFile}.new`, resultFile);
  }
  const failure = await whenReadable(clients, resultFile);
  if (failure !== '') throw new Error(failure);
  return folder;
}

/** Creates the folder unless it exists. Of several concurrent callers, exactly one gets true. */
async function createFolder(folder: string): Promise<boolean> {
  return mkdir(folder).then(
    () => true,
    (error: unknown) => {
      if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
      throw error;
    },
  );
}

async function whenReadable(folder: string, file: string): Promise<string> {
  const read = () => readFile(file, 'utf8').catch(() => undefined);
  return new Promise((resolve, reject) => {
    const end = (settle: () => void) => {
      watcher.close();
      clearTimeout(timer);
      settle();
    };
    const check = async () => {
      const text = await read();
      if (text !== undefined) end(() => resolve(text));
    };
    const watcher = watch(folder, () => void check());
    const timer = setTimeout(
      () => end(() => reject(new Error(`${file} did not exist after ${installLimitMs} ms.`))),
      installLimitMs,
    );
    // The file may have been written before the watcher started.
    void check();
  });
}
