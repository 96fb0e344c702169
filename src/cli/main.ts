#!/usr/bin/env node
import { parseArgs } from 'node:util';
import { demo } from '../../sandbox/demo/demo.js';
import { listen } from '../../sandbox/listen.js';
import type { StackPorts } from '../../sandbox/localStack.js';
import { CannotStart } from '../../sandbox/stack/cannotStart.js';
import { start } from '../../sandbox/start.js';
import { ConfigError, readLoginConfig } from '../config.js';
import { isRaisedByFunction } from '../db/client.js';
import { migrate } from '../db/migrate.js';
import { allowLogins } from '../db/roles.js';
import { maximumBatchItems } from '../domain/batch.js';
import { changeState, fundAccount, openAccount } from './account.js';
import { showArrivals } from './arrivals.js';
import { listBatches, pause, resume, showBatch } from './batches.js';
import { authenticate, withConnections } from './connections.js';
import { changeOpening, showOpenings } from './corridors.js';
import { showExposure } from './exposure.js';
import { createKey, listKeys, revokeKey, rollKey } from './keys.js';
import { changeLimits, changePayeeDelay, showLimits } from './limits.js';
import {
  addFirstOperator,
  addOperator,
  endOperator,
  rollOperator,
  showOperators,
} from './operators.js';
import { listAttention, payoutCommands, showPayout } from './payouts.js';
import { erase, rotateMasterKey } from './personalData.js';
import { decideWaitingRate, listRates, useProvider } from './rates.js';
import { reconcile } from './reconcile.js';
import { previewTerms, setTerms, showTerms } from './terms.js';
import { type Call, UsageError, usage } from './usage.js';

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
  allow: { type: 'string' },
  expires: { type: 'string' },
  overlap: { type: 'string', default: '24' },
  operator: { type: 'string' },
  role: { type: 'string' },
  reason: { type: 'string' },
  evidence: { type: 'string' },
  'statement-date': { type: 'string' },
  until: { type: 'string' },
  from: { type: 'string' },
  fixed: { type: 'string' },
  'basis-points': { type: 'string' },
  minimum: { type: 'string' },
  maximum: { type: 'string' },
  spread: { type: 'string' },
  proposal: { type: 'string' },
  charge: { type: 'string' },
  entry: { type: 'string' },
  postings: { type: 'string' },
  batch: { type: 'string' },
  payout: { type: 'string' },
  day: { type: 'string' },
  month: { type: 'string' },
  above: { type: 'string' },
  source: { type: 'string' },
  destination: { type: 'string' },
  hours: { type: 'string' },
  days: { type: 'string', default: '30' },
  forward: { type: 'string' },
  events: { type: 'string' },
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
      isRaisedByFunction(error)
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

/** What works on a database, by its words. The exit code is 1 where it answers false. */
const commands: Readonly<Record<string, (call: Call) => Promise<unknown>>> = {
  migrate: migrateForLogins,
  'operators list': showOperators,
  'operators first': addFirstOperator,
  'operators add': addOperator,
  'operators roll': rollOperator,
  'operators revoke': endOperator,
  'account open': openAccount,
  'account fund': fundAccount,
  'account freeze': (call) => changeState(call, 'frozen'),
  'account unfreeze': (call) => changeState(call, 'open'),
  'account close': (call) => changeState(call, 'closed'),
  'keys list': listKeys,
  'keys create': createKey,
  'keys roll': rollKey,
  'keys revoke': revokeKey,
  'limits set': changeLimits,
  'limits new-payee': changePayeeDelay,
  'limits show': showLimits,
  'payouts list': listAttention,
  'payouts show': showPayout,
  ...payoutCommands,
  'batches list': listBatches,
  'batches show': showBatch,
  'batches pause': pause,
  'batches resume': resume,
  'rates list': listRates,
  'rates use': useProvider,
  'rates accept': (call) => decideWaitingRate(call, 'accepted'),
  'rates reject': (call) => decideWaitingRate(call, 'rejected'),
  'terms list': showTerms,
  'terms set': setTerms,
  'terms preview': previewTerms,
  'corridors list': showOpenings,
  'corridors close': (call) => changeOpening(call, 'close'),
  'corridors open': (call) => changeOpening(call, 'open'),
  exposure: showExposure,
  arrivals: showArrivals,
  reconcile,
  erase,
  'master-key rotate': rotateMasterKey,
};

/** What the owner of the database does, before there are operators. */
const ownersCommands = new Set(['migrate', 'operators first']);

async function run(words: readonly string[], typed: Flags): Promise<number> {
  const [command = '', verb = ''] = words;
  if (typed.operator !== undefined) {
    throw new UsageError('--operator: leave it out; the name is that of CORRIDOR_OPERATOR_KEY.');
  }
  const { data, reset, help: _, ...flags } = typed;
  if (command === 'start') {
    return start({ directory: data ?? '.corridor', ports: portsOf(typed), reset });
  }
  if (command === 'demo') {
    return demo({
      directory: data ?? '.corridor/demo',
      ports: portsOf(typed, 0),
      reset: data === undefined || reset,
      batch: batchOf(typed),
    });
  }
  if (command === 'listen') return listen({ ...flags, directory: data ?? '.corridor' });
  const sent = `${command} ${verb}`.trim();
  const name = [command, sent].find((each) => Object.hasOwn(commands, each)) ?? '';
  const work = commands[name];
  if (work === undefined) {
    const fault = sent === '' ? 'A command is missing.' : `There is no command "${sent}".`;
    throw new UsageError(`${fault}\n\n${usage}`);
  }
  const { [name.split(' ').length]: id = '' } = words;
  const directory = data ?? '.corridor';
  return withConnections(directory, async (connections) => {
    if (!ownersCommands.has(name)) await authenticate(connections);
    return (await work({ ...connections, id, flags })) === false ? 1 : 0;
  });
}

async function migrateForLogins({ database }: Call): Promise<void> {
  const applied = await migrate(database);
  const logins = readLoginConfig(process.env);
  await allowLogins(database, {
    api: logins.API_DATABASE_URL,
    worker: logins.WORKER_DATABASE_URL,
    operator: logins.OPERATOR_DATABASE_URL,
  });
  console.log(applied.length === 0 ? 'Nothing to do.' : `Applied ${applied.join(', ')}.`);
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
