import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Part, startProcess } from '../../sandbox/stack/process.js';
import { type JournalLine, readJournal } from '../assertions/bankJournal.js';

export type TestBank = {
  readonly url: string;
  readonly apiToken: string;
  readonly callbackSecret: string;
  readonly part: Part;
  readonly journalFile: string;
  /** The bank's journal: the transfers that it has really made. */
  readonly journal: () => Promise<readonly JournalLine[]>;
  readonly stop: () => Promise<void>;
};

/** Starts the compiled sandbox bank in a separate process. `past` is the initial content of its journal. */
export async function startTestBank(callbackUrl: string, past = ''): Promise<TestBank> {
  const directory = await mkdtemp(join(tmpdir(), 'corridor-test-bank-'));
  const journalFile = join(directory, 'journal.jsonl');
  await writeFile(journalFile, past);
  const apiToken = 'test-bank-token-0123456789';
  const callbackSecret = 'test-callback-secret-0123456789';
  const part = await startProcess({
    name: 'sandbox-bank',
    command: process.execPath,
    args: [fileURLToPath(new URL('../../dist/sandbox/bank/main.js', import.meta.url))],
    env: {
      ...process.env,
      BANK_PORT: '0',
      BANK_JOURNAL: journalFile,
      BANK_API_TOKEN: apiToken,
      BANK_CALLBACK_URL: callbackUrl,
      BANK_CALLBACK_SECRET: callbackSecret,
    },
    ipc: true,
    ready: { line: (line) => /"listening":"([^"]+)"/.exec(line)?.[1] },
    readyTimeoutMs: 20_000,
    onLog: () => undefined,
  });
  return {
    url: part.announced,
    apiToken,
    callbackSecret,
    part,
    journalFile,
    journal: () => readJournal(journalFile),
    stop: async () => {
      await part.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
