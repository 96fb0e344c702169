import { join } from 'node:path';
import type { Client } from '@temporalio/client';
import { z } from 'zod';
import { ConfigError, readOperatorConfig, readOperatorTemporalConfig } from '../config.js';
import { connectDatabase } from '../db/client.js';
import { connectTemporal, refusalOf } from '../temporal/client.js';
import { readJson } from './jsonFile.js';
import type { Call } from './usage.js';

/**
 * Runs an operator's command on the configured database, or on that of the local stack; and with
 * a connection to Temporal where it asks for one.
 */
export async function withConnections<T>(
  directory: string,
  work: (connections: Pick<Call, 'database' | 'withTemporal'>) => Promise<T>,
): Promise<T> {
  const env = await environment(directory);
  const config = readOperatorConfig(env);
  const database = connectDatabase({
    url: config.DATABASE_URL,
    poolSize: 2,
    applicationName: 'corridor-cli',
  });
  try {
    return await work({ database, withTemporal: (ask) => withTemporal(env, ask) });
  } finally {
    await database.end({ timeout: 5 });
  }
}

async function withTemporal<T>(
  env: NodeJS.ProcessEnv,
  work: (temporal: Client) => Promise<T>,
): Promise<T> {
  const temporal = connectTemporal(readOperatorTemporalConfig(env));
  try {
    const refusal = await refusalOf(temporal);
    if (refusal !== undefined) throw new ConfigError(refusal);
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
