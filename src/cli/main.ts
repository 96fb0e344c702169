#!/usr/bin/env node
import { parseArgs } from 'node:util';
import { demo } from '../../sandbox/demo/demo.js';
import type { StackPorts } from '../../sandbox/localStack.js';
import { CannotStart } from '../../sandbox/stack/cannotStart.js';
import { start } from '../../sandbox/start.js';
import { ConfigError, readLoginConfig } from '../config.js';
import { type Database, isRefused } from '../db/client.js';
import { migrate } from '../db/migrate.js';
import { allowLogins } from '../db/roles.js';
import { maximumBatchItems } from '../domain/batch.js';
import { fundAccount, openAccount } from './account.js';
import { listBatches, pause, resume, showBatch } from './batches.js';
import { withDatabase, withTemporal } from './connections.js';
import { createKey, listKeys, revokeKey, rollKey } from './keys.js';
import { act, listAttention, showPayout } from './payouts.js';
import { decide, listRates, useProvider } from './rates.js';
import { reconcile } from './reconcile.js';
import { requiredFlag, signatureOf, UsageError, usage } from './usage.js';

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
  scopes: { type: 'string' },
  expires: { type: 'string' },
  overlap: { type: 'string', default: '24' },
  operator: { type: 'string' },
  reason: { type: 'string' },
  evidence: { type: 'string' },
  'statement-date': { type: 'string' },
  until: { type: 'string' },
  proposal: { type: 'string' },
  charge: { type: 'string' },
  entry: { type: 'string' },
  postings: { type: 'string' },
  batch: { type: 'string' },
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
    return await run(positionals, values);
  } catch (error) {
    if (
      error instanceof UsageError ||
      error instanceof ConfigError ||
      error instanceof CannotStart ||
      isRefused(error)
    ) {
      console.error(error.message);
    } else {
      console.error(error instanceof Error ? (error.stack ?? error.message) : error);
    }
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

async function run(words: readonly string[], flags: Flags): Promise<number> {
  const [command = '', verb = '', id = ''] = words;
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
        batch: batchOf(flags),
      });
    case 'migrate':
    case 'account':
    case 'keys':
    case 'payouts':
    case 'batches':
    case 'rates':
    case 'reconcile':
      return withDatabase(flags.data ?? '.corridor', (database) =>
        operate(database, { command, verb, id }, flags),
      );
    default:
      throw unknownCommand({ command, verb, id });
  }
}

type Words = { readonly command: string; readonly verb: string; readonly id: string };
type RecordCommand = 'account' | 'keys' | 'payouts' | 'batches' | 'rates';
type DatabaseCommand = 'migrate' | RecordCommand | 'reconcile';

/** What works on a database; the exit code says whether it did what was asked. */
async function operate(
  database: Database,
  words: Words & { readonly command: DatabaseCommand },
  flags: Flags,
): Promise<number> {
  switch (words.command) {
    case 'migrate': {
      const applied = await migrate(database);
      const logins = readLoginConfig(process.env);
      await allowLogins(database, {
        api: logins.API_DATABASE_URL,
        worker: logins.WORKER_DATABASE_URL,
        operator: logins.OPERATOR_DATABASE_URL,
      });
      console.log(applied.length === 0 ? 'Nothing to do.' : `Applied ${applied.join(', ')}.`);
      return 0;
    }
    case 'account':
      return account(database, words.verb, flags);
    case 'keys':
      await keys(database, words, flags);
      return 0;
    case 'payouts':
      return payouts(database, words, flags);
    case 'batches':
      return batches(database, words, flags);
    case 'rates':
      await rates(database, words, flags);
      return 0;
    case 'reconcile':
      return (await reconcile(database, new Date())) ? 0 : 1;
  }
}

async function account(database: Database, verb: string, flags: Flags): Promise<number> {
  switch (verb) {
    case 'open':
      await openAccount(
        database,
        { name: requiredFlag(flags, 'name'), mode: modeOf(flags.mode) },
        signatureOf(flags),
      );
      return 0;
    case 'fund':
      await fundAccount(
        database,
        {
          accountId: requiredFlag(flags, 'account'),
          currency: requiredFlag(flags, 'currency'),
          amount: requiredFlag(flags, 'amount'),
        },
        signatureOf(flags),
      );
      return 0;
    default:
      throw unknownCommand({ command: 'account', verb, id: '' });
  }
}

async function payouts(database: Database, { verb, id }: Words, flags: Flags): Promise<number> {
  if (verb === 'list') {
    await listAttention(database);
    return 0;
  }
  if (id === '') throw new UsageError(`The id of a payout is missing.\n\n${usage}`);
  if (verb === 'show') {
    await showPayout(database, id);
    return 0;
  }
  const isCarriedOut = await withTemporal(flags.data ?? '.corridor', (temporal) =>
    act({ database, temporal }, id, verb, flags),
  );
  return isCarriedOut ? 0 : 1;
}

async function batches(database: Database, { verb, id }: Words, flags: Flags): Promise<number> {
  if (verb === 'list') {
    await listBatches(database);
    return 0;
  }
  if (id === '') throw new UsageError(`The id of a batch is missing.\n\n${usage}`);
  switch (verb) {
    case 'show':
      await showBatch(database, id);
      return 0;
    case 'pause':
      return (await pause(database, id, signatureOf(flags))) ? 0 : 1;
    case 'resume': {
      const signature = signatureOf(flags);
      return withTemporal(flags.data ?? '.corridor', async (temporal) =>
        (await resume(database, temporal, id, signature)) ? 0 : 1,
      );
    }
    default:
      throw unknownCommand({ command: 'batches', verb, id });
  }
}

function unknownCommand({ command, verb }: Words): UsageError {
  const sent = `${command} ${verb}`.trim();
  const fault = sent === '' ? 'A command is missing.' : `There is no command "${sent}".`;
  return new UsageError(`${fault}\n\n${usage}`);
}

function rates(database: Database, words: Words, flags: Flags): Promise<void> {
  const { verb, id } = words;
  if (verb === 'list') return listRates(database);
  const decision = signatureOf(flags);
  if (verb === 'use') return useProvider(database, id, decision);
  if (verb === 'accept') return decide(database, id, 'accepted', decision);
  if (verb === 'reject') return decide(database, id, 'rejected', decision);
  throw unknownCommand(words);
}

function keys(database: Database, { verb, id }: Words, flags: Flags): Promise<void> {
  const { name, scopes, expires } = flags;
  if (verb === 'create') {
    const signature = signatureOf(flags);
    return createKey(
      database,
      requiredFlag(flags, 'account'),
      { name, scopes, expires },
      signature,
    );
  }
  if (verb === 'list') return listKeys(database, requiredFlag(flags, 'account'));
  if (verb !== 'roll' && verb !== 'revoke') throw unknownCommand({ command: 'keys', verb, id });
  if (id === '') throw new UsageError(`The id of a key is missing.\n\n${usage}`);
  if (verb === 'revoke') return revokeKey(database, id, signatureOf(flags));
  return rollKey(database, id, { overlap: flags.overlap, expires }, signatureOf(flags));
}

function modeOf(text: string): 'test' | 'live' {
  if (text === 'test' || text === 'live') return text;
  throw new UsageError('--mode expects test or live.');
}

function batchOf({ batch }: Flags): number | undefined {
  if (batch === undefined) return undefined;
  const count = /^[1-9]\d{0,4}$/.test(batch) ? Number.parseInt(batch, 10) : 0;
  if (count < 1 || count > maximumBatchItems) {
    throw new UsageError(`--batch expects a number of payouts, 1 to ${maximumBatchItems}.`);
  }
  return count;
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
