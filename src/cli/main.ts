#!/usr/bin/env node
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { z } from 'zod';
import { ConfigError, readOperatorConfig } from '../config.js';
import { connectDatabase, type Database } from '../db/client.js';
import { migrate } from '../db/migrate.js';
import { createKey, fundAccount, listKeys, openAccount, revokeKey } from './account.js';
import { demo } from './demo.js';
import type { StackPorts } from './stack.js';
import { start } from './start.js';
import { UsageError, usage } from './usage.js';

const options = {
  data: { type: 'string' },
  reset: { type: 'boolean', default: false },
  help: { type: 'boolean', short: 'h', default: false },
  'api-port': { type: 'string' },
  'metrics-port': { type: 'string' },
  'temporal-port': { type: 'string' },
  'temporal-ui-port': { type: 'string' },
  'postgres-port': { type: 'string' },
  'bank-port': { type: 'string' },
  name: { type: 'string' },
  mode: { type: 'string', default: 'test' },
  account: { type: 'string' },
  currency: { type: 'string' },
  amount: { type: 'string' },
  create: { type: 'boolean', default: false },
  revoke: { type: 'string' },
} as const;

type Flags = ReturnType<typeof parse>['values'];

const defaultPorts: StackPorts = {
  api: 8080,
  metrics: 9464,
  temporal: 7233,
  temporalUi: 8233,
  postgres: 5433,
  bank: 8090,
};
const freePorts: StackPorts = {
  api: 0,
  metrics: 0,
  temporal: 0,
  temporalUi: 0,
  postgres: 0,
  bank: 0,
};

process.exitCode = await main(process.argv.slice(2));

async function main(args: string[]): Promise<number> {
  try {
    const { positionals, values } = parse(args);
    if (values.help) {
      console.log(usage);
      return 0;
    }
    return await run(positionals.join(' '), values);
  } catch (error) {
    if (error instanceof UsageError || error instanceof ConfigError) console.error(error.message);
    else console.error(error instanceof Error ? (error.stack ?? error.message) : error);
    return error instanceof UsageError ? 2 : 1;
  }
}

function parse(args: string[]) {
  try {
    return parseArgs({ args, options, allowPositionals: true });
  } catch (error) {
    throw new UsageError(`${error instanceof Error ? error.message : String(error)}\n\n${usage}`);
  }
}

async function run(command: string, flags: Flags): Promise<number> {
  switch (command) {
    case 'start':
      return start({
        directory: flags.data ?? '.corridor',
        ports: portsOf(flags, defaultPorts),
        reset: flags.reset,
      });
    case 'demo':
      return demo({
        directory: flags.data ?? '.corridor/demo',
        ports: portsOf(flags, freePorts),
        reset: flags.data === undefined || flags.reset,
      });
    case 'migrate':
      return withDatabase(flags, async (database) => {
        const applied = await migrate(database);
        console.log(applied.length === 0 ? 'Nothing to do.' : `Applied ${applied.join(', ')}.`);
      });
    case 'account open':
      return withDatabase(flags, (database) =>
        openAccount(database, { name: required(flags, 'name'), mode: modeOf(flags.mode) }),
      );
    case 'account fund':
      return withDatabase(flags, (database) =>
        fundAccount(database, {
          accountId: required(flags, 'account'),
          currency: required(flags, 'currency'),
          amount: required(flags, 'amount'),
        }),
      );
    case 'account keys':
      return withDatabase(flags, (database) => keys(database, flags));
    default:
      throw new UsageError(
        `${command === '' ? 'A command is missing.' : `There is no command "${command}".`}\n\n${usage}`,
      );
  }
}

function keys(database: Database, flags: Flags): Promise<void> {
  const accountId = required(flags, 'account');
  if (flags.create) return createKey(database, accountId);
  if (flags.revoke !== undefined) return revokeKey(database, accountId, flags.revoke);
  return listKeys(database, accountId);
}

function required(flags: Flags, name: 'name' | 'account' | 'currency' | 'amount'): string {
  const value = flags[name];
  if (value === undefined || value === '')
    throw new UsageError(`--${name} is missing.\n\n${usage}`);
  return value;
}

function modeOf(text: string): 'test' | 'live' {
  if (text === 'test' || text === 'live') return text;
  throw new UsageError('--mode expects test or live.');
}

function portsOf(flags: Flags, defaults: StackPorts): StackPorts {
  return {
    api: portOf(flags, 'api-port', defaults.api),
    metrics: portOf(flags, 'metrics-port', defaults.metrics),
    temporal: portOf(flags, 'temporal-port', defaults.temporal),
    temporalUi: portOf(flags, 'temporal-ui-port', defaults.temporalUi),
    postgres: portOf(flags, 'postgres-port', defaults.postgres),
    bank: portOf(flags, 'bank-port', defaults.bank),
  };
}

type PortFlag = Extract<keyof typeof options, `${string}-port`>;

function portOf(flags: Flags, name: PortFlag, byDefault: number): number {
  const text = flags[name];
  if (text === undefined) return byDefault;
  const port = /^\d{1,5}$/.test(text) ? Number.parseInt(text, 10) : 65_536;
  if (port > 65_535) throw new UsageError(`--${name} expects a port number, 0 to 65535.`);
  return port;
}

/** Runs an operator's command on the configured database, or on that of the local stack. */
async function withDatabase(
  flags: Flags,
  work: (database: Database) => Promise<void>,
): Promise<number> {
  const local = await localDatabaseUrl(flags.data ?? '.corridor');
  const config = readOperatorConfig({ ...(local && { DATABASE_URL: local }), ...process.env });
  const database = connectDatabase({
    url: config.DATABASE_URL,
    poolSize: 2,
    applicationName: 'corridor-cli',
  });
  try {
    await work(database);
    return 0;
  } finally {
    await database.end({ timeout: 5 });
  }
}

async function localDatabaseUrl(directory: string): Promise<string | undefined> {
  try {
    const text = await readFile(join(directory, 'stack.json'), 'utf8');
    return z.object({ database_url: z.string() }).parse(JSON.parse(text)).database_url;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}
