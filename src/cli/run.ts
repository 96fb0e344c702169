import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import type { StackPorts } from '../../sandbox/localStack.js';
import { CannotStart } from '../../sandbox/stack/cannotStart.js';
import { ConfigError } from '../config.js';
import { isOutage, isRaisedByFunction } from '../db/client.js';
import { maximumBatchItems } from '../domain/batch.js';
import { countOf } from './amounts.js';
import { authenticate, withConnections } from './connections.js';
import { databaseCommandOf } from './databaseCommands.js';
import { commandOf, completion, flagsOf, helpOn, unknownCommand, wordsAfter } from './help.js';
import { type Flags, Refused, UsageError } from './usage.js';

/** Exit codes; help.ts explains them to users. */
const exitCodes = { done: 0, refused: 1, usage: 2, unavailable: 3 } as const;

/** Runs the command and returns its exit code. */
export async function runCommand(args: readonly string[]): Promise<number> {
  const words = args.filter((arg) => !arg.startsWith('-'));
  try {
    return await run(parse(args));
  } catch (error) {
    return reportFailure(error, words);
  }
}

/** Prints why a command failed, for people, and returns its exit code. */
export function reportFailure(error: unknown, words: readonly string[]): number {
  const { name, message, stack } = error instanceof Error ? error : new Error(String(error));
  if (error instanceof UsageError) {
    const topic = commandOf(words) ?? (helpOn(words) && words[0]) ?? '';
    console.error(`${message}\nSee: corridor help ${topic === 'help' ? '' : topic}`.trimEnd());
    return exitCodes.usage;
  }
  if (name === 'WorkflowUpdateRPCTimeoutOrCancelledError') {
    console.error(
      'There is no answer yet. The command may still be executed: look with corridor payouts show before ' +
        'you repeat it.',
    );
    return exitCodes.unavailable;
  }
  const isTemporalAway = name === 'ServiceError';
  if (error instanceof ConfigError || isOutage(error) || isTemporalAway) {
    const who = isTemporalAway ? 'Temporal' : 'The database';
    console.error(error instanceof ConfigError ? message : `${who} does not answer: ${message}`);
    return exitCodes.unavailable;
  }
  const isExpected =
    error instanceof CannotStart || error instanceof Refused || isRaisedByFunction(error);
  console.error(isExpected ? message : stack);
  return exitCodes.refused;
}

type Typed = {
  readonly words: readonly string[];
  readonly flags: Flags;
  /** Flags without a value. */
  readonly set: ReadonlySet<string>;
};

/** Splits the arguments into words and flags. Rejects flags that no command has. */
function parse(args: readonly string[]): Typed {
  const known = Object.entries(flagsOf()).map(([name, type]) => [name, { type }] as const);
  const options = { ...Object.fromEntries(known), help: { type: 'boolean', short: 'h' } as const };
  if (args.some((arg) => /^--operator(=|$)/.test(arg))) {
    throw new UsageError('--operator: leave it out; the name comes from CORRIDOR_OPERATOR_KEY.');
  }
  try {
    const { positionals, values } = parseArgs({ args: [...args], options, allowPositionals: true });
    const typed = Object.entries(values);
    return {
      words: positionals,
      flags: Object.fromEntries(
        typed.flatMap(([name, value]) => (typeof value === 'string' ? [[name, value]] : [])),
      ),
      set: new Set(typed.flatMap(([name, value]) => (value === true ? [name] : []))),
    };
  } catch (error) {
    const [message = ''] = (error instanceof Error ? error.message : String(error)).split('. ');
    throw new UsageError(`${message.replace(/\.$/, '')}.`);
  }
}

async function run(typed: Typed): Promise<number> {
  const { words, set } = typed;
  if (set.has('version')) {
    // In the package's root, three folders above this file in the build.
    const text = readFileSync(`${import.meta.dirname}/../../../package.json`, 'utf8');
    console.log(`corridor ${/"version": "([^"]+)"/.exec(text)?.[1] ?? ''}`);
    return exitCodes.done;
  }
  const name = commandOf(words);
  if (set.has('help') || name === 'help') {
    const asked = name === 'help' ? words.slice(1) : words;
    const help = helpOn(asked);
    if (help === undefined) throw new UsageError(unknownCommand(asked));
    console.log(help);
    return exitCodes.done;
  }
  if (name === undefined) throw new UsageError(unknownCommand(words));
  checkShape(name, typed);
  return perform(name, typed);
}

/** Rejects flags and words that the command does not take. */
function checkShape(name: string, { words, flags, set }: Typed): void {
  const known = flagsOf(name);
  const other = [...Object.keys(flags), ...set].find((flag) => !Object.hasOwn(known, flag));
  if (other !== undefined) throw new UsageError(`corridor ${name} takes no --${other}.`);
  const extra = words[name.split(' ').length + wordsAfter(name)];
  if (extra !== undefined) throw new UsageError(`corridor ${name} takes no argument "${extra}".`);
}

/** Commands without an operator key: the database owner's first steps, and the diagnosis. */
const withoutKey = new Set(['migrate', 'operators first', 'doctor']);

async function perform(name: string, { words, flags: typed, set }: Typed): Promise<number> {
  const { data, ...flags } = typed;
  const id = words[name.split(' ').length] ?? '';
  const directory = data ?? '.corridor';
  switch (name) {
    case 'start':
      return (await import('../../sandbox/start.js')).start({
        ...{ directory, ports: portsOf(typed), reset: set.has('reset') },
        isRehearsal: set.has('rehearsal'),
      });
    case 'demo':
      return (await import('../../sandbox/demo/demo.js')).demo({
        directory: data ?? '.corridor/demo',
        ports: portsOf(typed, 0),
        reset: data === undefined || set.has('reset'),
        batch: batchOf(typed),
      });
    case 'listen':
      return (await import('../../sandbox/listen.js')).listen({ ...flags, directory });
    case 'sign-in':
      await (await import('./signIn.js')).signIn();
      return exitCodes.done;
    case 'rehearse':
      return (await import('../../sandbox/rehearse.js')).rehearse(directory, id);
    case 'completion': {
      const script = completion(id);
      if (script === undefined) throw new UsageError('corridor completion expects bash or zsh.');
      console.log(script);
      return exitCodes.done;
    }
  }
  const command = await databaseCommandOf(name);
  if (command === undefined) throw new Error(`${name} has no function.`);
  const switches = { isJson: set.has('json'), isStuck: set.has('stuck') };
  return withConnections(directory, async (connections) => {
    if (!withoutKey.has(name)) await authenticate(connections);
    const isDone = (await command({ ...connections, id, flags, ...switches })) !== false;
    return isDone ? exitCodes.done : exitCodes.refused;
  });
}

function batchOf({ batch }: Flags): number | undefined {
  if (batch === undefined) return undefined;
  return countOf('batch', batch, 'a number of payouts', [1, maximumBatchItems]);
}

/** Returns the stack's ports: as typed, else `byDefault` for all of them, else the usual port of each. */
function portsOf(flags: Flags, byDefault?: number): StackPorts {
  const port = (name: string, usual: number) => {
    const text = flags[name];
    if (text === undefined) return byDefault ?? usual;
    return countOf(name, text, 'a port number', [0, 65_535]);
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
