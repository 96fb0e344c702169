import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Connection } from '@temporalio/client';
import { type OnSpawn, type Part, startProcess } from './process.js';

/** Timeout until ready: about 2 s on an idle machine, more if all parts start at once. */
const readyTimeoutMs = 30_000;

type TemporalOptions = {
  readonly binary: string;
  readonly port: number;
  readonly uiPort: number;
  /** The SQLite file with all histories; its directory is created if needed. */
  readonly dbFile: string;
  readonly namespace: string;
  readonly onLog: (line: string) => void;
  readonly onSpawn?: OnSpawn;
};

/**
 * Starts Temporal's development server, UI included, on 127.0.0.1 and waits
 * until it serves the namespace. Histories survive kill -9.
 *
 * @throws PartNotReady if it exits or does not answer within 30 s
 */
export async function startTemporalDevServer(options: TemporalOptions): Promise<Part> {
  const { binary, port, uiPort, dbFile, namespace, onLog, onSpawn } = options;
  await mkdir(dirname(dbFile), { recursive: true });
  return startProcess({
    name: 'temporal',
    command: binary,
    args: [
      ...['server', 'start-dev', '--ip', '127.0.0.1', '--port', String(port)],
      ...['--ui-port', String(uiPort), '--ui-disable-news-fetch'],
      ...['--namespace', namespace, '--db-filename', dbFile],
      // With a write-ahead log, committed data survives a crash of the process.
      // NORMAL omits only the fsync that protects against a power cut.
      ...['--sqlite-pragma', 'journal_mode=WAL', '--sqlite-pragma', 'synchronous=NORMAL'],
      // The server contacts no external host for news or version checks.
      ...['--dynamic-config-value', 'frontend.enableServerVersionCheck=false'],
      ...['--log-level', 'warn', '--log-format', 'json'],
    ],
    env: { ...process.env },
    ready: { probe: () => answersFor(namespace, `127.0.0.1:${port}`) },
    readyTimeoutMs,
    onLog,
    onSpawn,
  });
}

/** Probes for the namespace, because the port opens before the namespace exists. */
async function answersFor(namespace: string, address: string): Promise<boolean> {
  try {
    const connection = await Connection.connect({ address, connectTimeout: 1_000 });
    try {
      await connection.withDeadline(Date.now() + 1_000, () =>
        connection.workflowService.describeNamespace({ namespace }),
      );
    } finally {
      await connection.close();
    }
    return true;
  } catch {
    // Not ready yet: the caller retries until its timeout, and then shows the server's output.
    return false;
  }
}
