import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { freePort } from '../../sandbox/stack/ports.js';
import { startTemporalDevServer } from '../../sandbox/stack/temporal.js';
import { findTemporalCli } from '../../sandbox/stack/temporalBinary.js';
import { finderOptions } from './servers.js';

declare module 'vitest' {
  export interface ProvidedContext {
    temporalAddress: string;
  }
}

/** One Temporal server for a project's run: the configured one, or a dev server of its own. */
export async function setup(project: TestProject) {
  const configured = process.env['TEMPORAL_ADDRESS'];
  if (configured !== undefined && configured !== '') {
    project.provide('temporalAddress', configured);
    return undefined;
  }
  const binary = await findTemporalCli(finderOptions('TEMPORAL_CLI_PATH'));
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
  project.provide('temporalAddress', `127.0.0.1:${port}`);
  return async () => {
    await part.stop();
    await rm(directory, { recursive: true, force: true });
  };
}
