import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { freePort } from '../../sandbox/stack/ports.js';
import { startPostgres } from '../../sandbox/stack/postgres.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** A server on which each test file makes a database of its own. */
    postgresUrl: string;
  }
}

/** One PostgreSQL for a project's run: the configured one, or an embedded one of its own. */
export async function setup(project: TestProject) {
  const configured = process.env['DATABASE_URL'];
  if (configured !== undefined && configured !== '') {
    project.provide('postgresUrl', configured);
    return undefined;
  }
  const directory = await mkdtemp(join(tmpdir(), 'corridor-test-postgres-'));
  const part = await startPostgres({
    dataDir: directory,
    port: await freePort(),
    database: 'corridor',
    onLog: () => undefined,
  });
  project.provide('postgresUrl', part.databaseUrl);
  return async () => {
    await part.stop();
    await rm(directory, { recursive: true, force: true });
  };
}
