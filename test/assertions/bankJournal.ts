import { readFile } from 'node:fs/promises';
import { z } from 'zod';

const journalLine = z.object({ type: z.string(), key: z.string().optional() });
export type JournalLine = z.infer<typeof journalLine>;

/** The sandbox bank's own record of what was really sent; empty before its first line. */
export async function readJournal(file: string): Promise<readonly JournalLine[]> {
  const text = await readFile(file, 'utf8');
  // A line without its end is still being written.
  const lines = text.split('\n').slice(0, -1);
  return lines.map((line) => journalLine.parse(JSON.parse(line)));
}
