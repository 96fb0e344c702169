import { mkdir, open, readFile, truncate } from 'node:fs/promises';
import { dirname } from 'node:path';
import { type Fact, type JournalLine, journalLine } from './facts.js';

export type Journal = {
  /** The lines that earlier runs have written, in order. */
  readonly written: readonly JournalLine[];
  /** Stages a fact synchronously, so that its order is fixed before any caller waits. */
  write(fact: Fact): JournalLine;
  /**
   * Resolves when everything staged so far is on disk. After a failed write it always rejects, because
   * the bank must not acknowledge what it cannot store.
   */
  durable(): Promise<void>;
  close(): Promise<void>;
};

const newline = 0x0a;

/**
 * Opens the append-only journal of JSON lines. Truncates an incomplete last line: the process was killed
 * while writing it, before any answer that depends on it was sent.
 *
 * @throws Error naming the line if the journal cannot be parsed
 */
export async function openJournal(path: string): Promise<Journal> {
  await mkdir(dirname(path), { recursive: true });
  const written = await readJournal(path);
  const file = await open(path, 'a');

  let sequence = written.length;
  let staged: string[] = [];
  let isCommitDue = false;
  let last = Promise.resolve();

  // Group commit: one write and one sync for everything staged during the previous one.
  async function commit(): Promise<void> {
    isCommitDue = false;
    const text = staged.join('');
    staged = [];
    await file.appendFile(text);
    await file.datasync();
  }

  function durable(): Promise<void> {
    if (staged.length > 0 && !isCommitDue) {
      isCommitDue = true;
      last = last.then(commit);
    }
    return last;
  }

  return {
    written,
    write: (fact) => {
      sequence += 1;
      const line = { seq: sequence, at: new Date().toISOString(), ...fact };
      staged.push(`${JSON.stringify(line)}\n`);
      return line;
    },
    durable,
    close: async () => {
      await durable();
      await file.close();
    },
  };
}

/** Reads the whole file: a million transfers are about 1 GB, and a sandbox is reset long before that. */
async function readJournal(path: string): Promise<readonly JournalLine[]> {
  // 'a+' creates the file if it does not exist.
  const bytes = await readFile(path, { flag: 'a+' });
  const wholeLength = bytes.lastIndexOf(newline) + 1;
  const lines = parseLines(bytes.subarray(0, wholeLength), path);
  if (wholeLength < bytes.length) await truncate(path, wholeLength);
  return lines;
}

function parseLines(bytes: Buffer, path: string): readonly JournalLine[] {
  const lines: JournalLine[] = [];
  for (let start = 0; start < bytes.length; ) {
    const end = bytes.indexOf(newline, start);
    lines.push(parseLine(bytes.toString('utf8', start, end), `${path}:${lines.length + 1}`));
    start = end + 1;
  }
  return lines;
}

function parseLine(text: string, place: string): JournalLine {
  try {
    return journalLine.parse(JSON.parse(text));
  } catch (cause) {
    throw new Error(`${place} is not a valid line of the bank's journal.`, { cause });
  }
}
