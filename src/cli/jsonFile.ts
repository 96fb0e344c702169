import { readFile, rename, writeFile } from 'node:fs/promises';
import type { z } from 'zod';

/** What a file of ours holds, or undefined when there is none; another shape throws. */
export async function readJson<T>(file: string, shape: z.ZodType<T>): Promise<T | undefined> {
  try {
    return shape.parse(JSON.parse(await readFile(file, 'utf8')));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Written beside and renamed, so that nobody reads half of it; readable by its owner alone. */
export async function writeJson(file: string, value: object): Promise<void> {
  await writeFile(`${file}.new`, `${JSON.stringify(value, null, 2)}\n`, { mode: 0o600 });
  await rename(`${file}.new`, file);
}
