import { join } from 'node:path';
import type { Client } from '@temporalio/client';
import { z } from 'zod';
import { readOperatorConfig, readOperatorTemporalConfig } from '../config.js';
import { connectDatabase, type Database } from '../db/client.js';
import { connectTemporal } from '../temporal/client.js';
import { readJson } from './jsonFile.js';

/** Runs an operator's command on the configured database, or on that of the local stack. */
export async function withDatabase<T>(
  directory: string,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  const config = readOperatorConfig(await environment(directory));
  const database = connectDatabase({
    url: config.DATABASE_URL,
    poolSize: 2,
    applicationName: 'corridor-cli',
  });
  try {
    return await work(database);
  } finally {
    await database.end({ timeout: 5 });
  }
}

/** The same with a connection to Temporal. */
export async function withTemporal<T>(
  directory: string,
  work: (temporal: Client) => Promise<T>,
): Promise<T> {
  const config = readOperatorTemporalConfig(await environment(directory));
  const temporal = connectTemporal({
    address: config.TEMPORAL_ADDRESS,
    namespace: config.TEMPORAL_NAMESPACE,
  });
  try {
    return await work(temporal);
  } finally {
    await temporal.connection.close();
  }
}

const localStack = z.object({ database_url: z.string(), temporal_address: z.string() });

/** The environment, with what a local stack that runs in the directory says for what is not set. */
async function environment(directory: string) {
  const stack = await readJson(join(directory, 'stack.json'), localStack);
  if (stack === undefined) return process.env;
  const { database_url, temporal_address } = stack;
  return { DATABASE_URL: database_url, TEMPORAL_ADDRESS: temporal_address, ...process.env };
}
