import { join } from 'node:path';
import type { Client } from '@temporalio/client';
import { z } from 'zod';
import {
  ConfigError,
  type Environment,
  readOperatorConfig,
  readOperatorTemporalConfig,
  type TemporalConfig,
} from '../config.js';
import { connectDatabase } from '../db/client.js';
import { isWellFormedOperatorKey, operatorOf } from '../db/operators.js';
import { readJson } from './jsonFile.js';
import type { Call } from './usage.js';

/**
 * Runs an operator's command on the configured database, or on that of the local stack. Connects to
 * Temporal only if the command needs it.
 */
export async function withConnections<T>(
  directory: string,
  work: (connections: Omit<Call, 'id' | 'flags' | 'isJson' | 'isStuck'>) => Promise<T>,
): Promise<T> {
  const stack = await stackIn(directory);
  // Empty means unset, as for every setting: an empty variable must not hide the value of the stack.
  const set = Object.entries({ ...process.env }).filter(([, value]) => value !== '');
  // With another database than the stack's, its commands must not reach the stack's Temporal either.
  const { DATABASE_URL: own, DATABASE_URL_FILE: file } = Object.fromEntries(set);
  const isOther = file !== undefined || (own !== undefined && !isSame(own, stack.settings));
  const settings = isOther ? {} : stack.settings;
  const env: Environment = { ...settings, ...Object.fromEntries(set) };
  if (!env['DATABASE_URL'] && !env['DATABASE_URL_FILE']) {
    throw new ConfigError(
      `No stack runs in ${directory}, and DATABASE_URL is not set. Start one with corridor start, name ` +
        'its folder with --data DIR, or set DATABASE_URL and TEMPORAL_ADDRESS for production.',
    );
  }
  const config = readOperatorConfig(process.env, settings);
  const { DATABASE_URL: url, CORRIDOR_OPERATOR_KEY: operatorKey } = config;
  const database = connectDatabase({ url, poolSize: 2, applicationName: 'corridor-cli' });
  const temporalConfig = () => readOperatorTemporalConfig(process.env, settings);
  try {
    const { TEMPORAL_UI_URL: ui, TEMPORAL_NAMESPACE: namespace = 'default' } = env;
    return await work({
      database,
      operatorKey,
      temporalConfig,
      withTemporal: (work) => withTemporal(temporalConfig(), work),
      temporalUi: ui ? `${ui}/namespaces/${namespace}` : undefined,
      environment: env,
      directory: stack.isRunning ? directory : undefined,
    });
  } finally {
    await database.end({ timeout: 5 });
  }
}

/** Refuses a caller without a valid key. The database then checks what the key may do at each command. */
export async function authenticate(call: Pick<Call, 'database' | 'operatorKey'>): Promise<void> {
  const { database, operatorKey } = call;
  if (operatorKey === '') {
    throw new ConfigError(
      'CORRIDOR_OPERATOR_KEY is not set: expected your operator key (cop_…). An admin makes one with ' +
        'corridor operators add; or sign in with corridor sign-in.',
    );
  }
  if (!isWellFormedOperatorKey(operatorKey)) {
    throw new ConfigError(
      'CORRIDOR_OPERATOR_KEY: expected cop_ and 36 letters and digits with a valid checksum: look for a typo.',
    );
  }
  await operatorOf(database, operatorKey);
}

async function withTemporal<T>(
  config: TemporalConfig,
  work: (temporal: Client) => Promise<T>,
): Promise<T> {
  // Loaded lazily: importing Temporal's client takes longer than most commands run, and most do not need it.
  const { connectTemporal, refusalOf } = await import('../temporal/client.js');
  const temporal = connectTemporal(config);
  try {
    const refusal = await refusalOf(temporal);
    if (refusal !== undefined) throw new ConfigError(refusal);
    return await work(temporal);
  } finally {
    await temporal.connection.close();
  }
}

const localStack = z.object({
  database_url: z.string(),
  temporal_address: z.string(),
  operator_key: z.string().optional(),
  temporal_ui_url: z.string().nullish(),
  sandbox_bank_url: z.string().optional(),
});

/** Reads the settings of a local stack running in the directory, as defaults for what is not configured. */
/** Whether a URL names the stack's database; the logins may differ. */
function isSame(url: string, { DATABASE_URL: ofStack = '' }: Environment): boolean {
  const placeOf = (text: string) => (URL.canParse(text) ? new URL(text) : undefined);
  const [one, other] = [placeOf(url), placeOf(ofStack)];
  return one?.host === other?.host && one?.pathname === other?.pathname;
}

async function stackIn(directory: string) {
  const stack = await readJson(join(directory, 'stack.json'), localStack);
  const settings: Environment = {
    DATABASE_URL: stack?.database_url,
    TEMPORAL_ADDRESS: stack?.temporal_address,
    TEMPORAL_UI_URL: stack?.temporal_ui_url ?? undefined,
    SANDBOX_BANK_URL: stack?.sandbox_bank_url,
    CORRIDOR_OPERATOR_KEY: stack?.operator_key,
  };
  return { settings, isRunning: stack !== undefined };
}
