import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { freePort } from '../../sandbox/stack/ports.js';
import { startPostgres } from '../../sandbox/stack/postgres.js';
import { migrate } from '../../src/db/migrate.js';
import { oncePerRun, places } from './oncePerRun.js';
import { forgetOnPowerCut, onServer } from './onServer.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** The server on which each test file creates a separate database. */
    postgresUrl: string;
    /**
     * An empty database with the newest schema, from which test files copy theirs. A database shared by
     * test files has a name that begins with this one, and is dropped with it.
     */
    postgresTemplate: string;
  }
}

/** One PostgreSQL server per run: the configured one, or an embedded one. */
export async function setup(project: TestProject) {
  const { value, end } = await oncePerRun(places.postgres, start);
  project.provide('postgresUrl', value.url);
  project.provide('postgresTemplate', value.template);
  return end;
}

async function start() {
  const server = await findServer();
  const template = `test_template_${randomBytes(6).toString('hex')}`;
  await onServer(server.url, (admin) => admin.unsafe(`create database ${template}`));
  const url = Object.assign(new URL(server.url), { pathname: `/${template}` }).href;
  await onServer(url, migrate);
  return {
    value: { url: server.url, template },
    end: async () => {
      await onServer(server.url, async (admin) => {
        const made = await admin<{ name: string }[]>`
          select datname as name from pg_database where starts_with(datname, ${template})`;
        for (const { name } of made) await admin.unsafe(`drop database ${name} with (force)`);
      });
      await server.stop();
    },
  };
}

type Server = { readonly url: string; readonly stop: () => Promise<void> };

async function findServer(): Promise<Server> {
  const configured = process.env['DATABASE_URL'];
  if (configured !== undefined && configured !== '') {
    return { url: configured, stop: async () => undefined };
  }
  const directory = await mkdtemp(join(tmpdir(), 'corridor-test-postgres-'));
  const part = await startPostgres({
    dataDir: directory,
    port: await freePort(),
    database: 'corridor',
    // With these settings PostgreSQL skips WAL for a table created and filled in one transaction.
    // They rule out replicas and backups, which this server does not need.
    settings: ['wal_level=minimal', 'max_wal_senders=0'],
    onLog: () => undefined,
  });
  await onServer(part.databaseUrl, forgetOnPowerCut);
  return {
    url: part.databaseUrl,
    stop: async () => {
      await part.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
