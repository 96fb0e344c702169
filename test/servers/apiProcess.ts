import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { type Part, sendSignal, startProcess } from '../../sandbox/stack/process.js';
import { masterKey } from '../fixtures/keyring.js';
import { temporalAddress } from './temporalAddress.js';

/** The API as it is delivered, in a separate process. */
export type ApiProcess = {
  readonly url: string;
  readonly metricsUrl: string;
  readonly part: Part;
  /** Every line that the process has logged. */
  readonly lines: readonly string[];
  /** Sends SIGTERM, as a deployment does, without waiting for the process to exit. */
  readonly terminate: () => void;
  /** Resident memory of the process in bytes (Linux only). */
  readonly memoryBytes: () => number;
};

/** Starts the API on an existing database. No bank is reachable. */
export async function startApiProcess(
  databaseUrl: string,
  env: Readonly<Record<string, string>> = {},
  nodeFlags: readonly string[] = [],
): Promise<ApiProcess> {
  const lines: string[] = [];
  const main = fileURLToPath(new URL('../../dist/src/api/main.js', import.meta.url));
  const part = await startProcess({
    name: 'api',
    command: process.execPath,
    // As in docker-compose.yml.
    args: [...nodeFlags, '--max-semi-space-size=8', '--enable-source-maps', main],
    env: {
      ...process.env,
      DATABASE_URL: databaseUrl,
      TEMPORAL_ADDRESS: temporalAddress(),
      SANDBOX_BANK_CALLBACK_SECRET: 'a-callback-secret-of-the-tests',
      MASTER_KEY: masterKey,
      FINGERPRINT_SECRET: 'a-fingerprint-secret-of-the-tests',
      API_PORT: '0',
      RATE_LIMIT_PER_SECOND: '99999',
      RATE_LIMIT_BURST: '99999',
      IN_FLIGHT_LIMIT: '9999',
      ITEM_LIMIT_PER_SECOND: '99999',
      ...env,
    },
    ipc: true,
    ready: { line: (line) => /"ready":"(http[^"]+)"/.exec(line)?.[1] },
    readyTimeoutMs: 45_000,
    stopTimeoutMs: 30_000,
    onLog: (line) => lines.push(line),
  });
  const metrics = lines.map((line) => /"metrics":"(http[^"]+)"/.exec(line)?.[1]);
  return {
    url: part.announced,
    metricsUrl: metrics.find((url) => url !== undefined) ?? '',
    part,
    lines,
    terminate: () => sendSignal(part.pid, 'SIGTERM'),
    memoryBytes: () => {
      const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(
        readFileSync(`/proc/${part.pid}/status`, 'utf8'),
      )?.[1];
      if (kilobytes === undefined)
        throw new Error('The kernel does not report the memory of the process.');
      return Number.parseInt(kilobytes, 10) * 1024;
    },
  };
}
