import { readFile, rename, writeFile } from 'node:fs/promises';
import type { z } from 'zod';

/** Reads a JSON file that we wrote. Undefined if it does not exist; throws if its shape is wrong. */
export async function readJson<T>(file: string, shape: z.ZodType<T>): Promise<T | undefined> {
  try {
    return shape.parse(JSON.parse(await readFile(file, 'utf8')));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Writes a temporary file and renames it, so that nobody reads half a file. Only the owner can read it. */
export async function writeJson(file: string, value: object): Promise<void> {
  await writeFile(`${file}.new`, `${JSON.stringify(value, null, 2)}\n`, { mode: 0o600 });
  await rename(`${file}.new`, file);
}
