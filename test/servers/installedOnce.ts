import { watch } from 'node:fs';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { inject } from 'vitest';

/** Time limit for an installation. A virtual environment whose packages must be downloaded takes a minute. */
const patienceMs = 110_000;

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
  const verdict = `${folder}.done`;
  if (await isMade(folder)) {
    const failure = await install(folder).then(
      () => '',
      (error: unknown) => (error instanceof Error ? error.message : String(error)),
    );
    // Written under another name and renamed, so that readers never see a partial file.
    await writeFile(`${verdict}.new`, failure);
    await rename(`${verdict}.new`, verdict);
  }
  const failure = await whenReadable(clients, verdict);
  if (failure !== '') throw new Error(failure);
  return folder;
}

/** Whether this call created the folder. Of several concurrent callers, exactly one gets true. */
async function isMade(folder: string): Promise<boolean> {
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
    const look = async () => {
      const text = await read();
      if (text !== undefined) end(() => resolve(text));
    };
    const watcher = watch(folder, () => void look());
    const timer = setTimeout(
      () => end(() => reject(new Error(`${file} was not there after ${patienceMs} ms.`))),
      patienceMs,
    );
    // The file may have been written before the watcher started.
    void look();
  });
}
