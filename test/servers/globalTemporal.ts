import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { freePort } from '../../sandbox/stack/ports.js';
import { startTemporalDevServer } from '../../sandbox/stack/temporal.js';
import { findTemporalCli } from '../../sandbox/stack/temporalBinary.js';
import { finderOptions } from './finders.js';
import { oncePerRun, places, type Shared } from './oncePerRun.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** One server per concurrent test file; otherwise workers would take the tasks of other files. */
    temporalAddresses: readonly string[];
  }
}

/** The Temporal servers of a run: the configured one, or newly started dev servers. */
export async function setup(project: TestProject) {
  const configured = process.env['TEMPORAL_ADDRESS'];
  if (configured !== undefined && configured !== '') {
    project.provide('temporalAddresses', [configured]);
    return undefined;
  }
  const { maxWorkers } = project.vitest.config;
  const { value, end } = await oncePerRun(places.temporal, () => startAll(maxWorkers));
  project.provide('temporalAddresses', value);
  return end;
}

async function startAll(count: number): Promise<Shared<readonly string[]>> {
  // Found before the servers start, because on a fresh machine each of them would build the binary.
  const binary = await findTemporalCli(finderOptions('TEMPORAL_CLI_PATH'));
  const servers = await Promise.all(Array.from({ length: count }, () => start(binary)));
  return {
    value: servers.map(({ value }) => value),
    end: async () => {
      await Promise.all(servers.map(({ end }) => end()));
    },
  };
}

async function start(binary: string): Promise<Shared<string>> {
  const directory = await mkdtemp(join(tmpdir(), 'corridor-test-temporal-'));
  const port = await freePort();
  const part = await startTemporalDevServer({
    binary,
    port,
    uiPort: await freePort(),
    dbFile: join(directory, 'temporal.sqlite'),
    namespace: 'default',
    onLog: () => undefined,
  });
  return {
    value: `127.0.0.1:${port}`,
    end: async () => {
      await part.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
