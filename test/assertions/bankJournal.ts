import { readFile } from 'node:fs/promises';
import { z } from 'zod';

const journalLine = z.object({ type: z.string(), key: z.string().optional() });
export type JournalLine = z.infer<typeof journalLine>;

/** Reads the sandbox bank's own record of its transfers; empty until the first one. */
export async function readJournal(file: string): Promise<readonly JournalLine[]> {
  const text = await readFile(file, 'utf8');
  // The last element is empty, or a line that is still being written.
  const lines = text.split('\n').slice(0, -1);
  return lines.map((line) => journalLine.parse(JSON.parse(line)));
}
