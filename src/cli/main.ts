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
import { act, listAttention, payoutVerbs, showPayout } from './payouts.js';
import { decideWaitingRate, listRates, useProvider } from './rates.js';
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

/** A command as it was typed. */
type Call = {
  readonly database: Database;
  readonly directory: string;
  readonly id: string;
  readonly flags: Flags;
};

/** What works on a database, by its words. The exit code is 1 where it answers false. */
const commands: Readonly<Record<string, (call: Call) => Promise<unknown>>> = {
  migrate: ({ database }) => migrateForLogins(database),
  'account open': ({ database, flags }) => openAccount(database, flags),
  'account fund': ({ database, flags }) => fundAccount(database, flags),
  'keys list': ({ database, flags }) => listKeys(database, requiredFlag(flags, 'account')),
  'keys create': ({ database, flags }) =>
    createKey(database, requiredFlag(flags, 'account'), flags, signatureOf(flags)),
  'keys roll': (call) =>
    rollKey(call.database, idOf('key', call), call.flags, signatureOf(call.flags)),
  'keys revoke': (call) => revokeKey(call.database, idOf('key', call), signatureOf(call.flags)),
  'payouts list': ({ database }) => listAttention(database),
  'payouts show': (call) => showPayout(call.database, idOf('payout', call)),
  ...Object.fromEntries(
    payoutVerbs.map((verb) => [`payouts ${verb}`, (call: Call) => actOnPayout(verb, call)]),
  ),
  'batches list': ({ database }) => listBatches(database),
  'batches show': (call) => showBatch(call.database, idOf('batch', call)),
  'batches pause': (call) => pause(call.database, idOf('batch', call), signatureOf(call.flags)),
  'batches resume': (call) => {
    const [id, signature] = [idOf('batch', call), signatureOf(call.flags)];
    return withTemporal(call.directory, (temporal) =>
      resume(call.database, temporal, id, signature),
    );
  },
  'rates list': ({ database }) => listRates(database),
  'rates use': ({ database, id, flags }) => useProvider(database, id, signatureOf(flags)),
  'rates accept': (call) =>
    decideWaitingRate(call.database, idOf('rate', call), 'accepted', signatureOf(call.flags)),
  'rates reject': (call) =>
    decideWaitingRate(call.database, idOf('rate', call), 'rejected', signatureOf(call.flags)),
  reconcile: ({ database }) => reconcile(database, new Date()),
};

async function run(words: readonly string[], flags: Flags): Promise<number> {
  const [command = '', verb = '', id = ''] = words;
  const { data, reset } = flags;
  if (command === 'start') {
    return start({ directory: data ?? '.corridor', ports: portsOf(flags), reset });
  }
  if (command === 'demo') {
    return demo({
      directory: data ?? '.corridor/demo',
      ports: portsOf(flags, 0),
      reset: data === undefined || reset,
      batch: batchOf(flags),
    });
  }
  const sent = `${command} ${verb}`.trim();
  const name = [command, sent].find((each) => Object.hasOwn(commands, each)) ?? '';
  const work = commands[name];
  if (work === undefined) {
    const fault = sent === '' ? 'A command is missing.' : `There is no command "${sent}".`;
    throw new UsageError(`${fault}\n\n${usage}`);
  }
  const directory = data ?? '.corridor';
  return withDatabase(directory, async (database) =>
    (await work({ database, directory, id, flags })) === false ? 1 : 0,
  );
}

async function migrateForLogins(database: Database): Promise<void> {
  const applied = await migrate(database);
  const logins = readLoginConfig(process.env);
  await allowLogins(database, {
    api: logins.API_DATABASE_URL,
    worker: logins.WORKER_DATABASE_URL,
    operator: logins.OPERATOR_DATABASE_URL,
  });
  console.log(applied.length === 0 ? 'Nothing to do.' : `Applied ${applied.join(', ')}.`);
}

function actOnPayout(verb: string, call: Call): Promise<boolean> {
  const id = idOf('payout', call);
  return withTemporal(call.directory, (temporal) =>
    act({ database: call.database, temporal }, id, verb, call.flags),
  );
}

function idOf(what: string, { id }: Call): string {
  if (id === '') throw new UsageError(`The id of a ${what} is missing.\n\n${usage}`);
  return id;
}

function batchOf({ batch }: Flags): number | undefined {
  if (batch === undefined) return undefined;
  const count = /^[1-9]\d{0,4}$/.test(batch) ? Number.parseInt(batch, 10) : 0;
  if (count < 1 || count > maximumBatchItems) {
    throw new UsageError(`--batch expects a number of payouts, 1 to ${maximumBatchItems}.`);
  }
  return count;
}

/** The ports of the stack: as typed, or all of them `byDefault`, or each its usual one. */
function portsOf(flags: Flags, byDefault?: number): StackPorts {
  const port = (name: PortFlag, usual: number) => {
    const text = flags[name];
    if (text === undefined) return byDefault ?? usual;
    const typed = /^\d{1,5}$/.test(text) ? Number.parseInt(text, 10) : 65_536;
    if (typed > 65_535) throw new UsageError(`--${name} expects a port number, 0 to 65535.`);
    return typed;
  };
  return {
    api: port('api-port', 8080),
    metrics: port('metrics-port', 9464),
    temporal: port('temporal-port', 7233),
    temporalUi: port('temporal-ui-port', 8233),
    postgres: port('postgres-port', 5433),
    bank: port('bank-port', 8090),
  };
}

type PortFlag = Extract<keyof typeof options, `${string}-port`>;

process.exitCode = await main(process.argv.slice(2));
