import type { Client } from '@temporalio/client';
import type { Environment, TemporalConfig } from '../config.js';
import type { Database } from '../db/client.js';
import { isDay } from '../domain/day.js';
import { expectedLine, isPlainLine, type Signature } from '../domain/operator.js';

/** Wrong usage of a command. The message says what was expected. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** A command that was called correctly but is refused because of the current state. */
export class Refused extends Error {
  override readonly name = 'Refused';
}

/** The flags of a command by their names, as they were typed. */
export type Flags = Readonly<Record<string, string | undefined>>;

/** A command as it was typed, with its connections. `id` is empty if none was typed. */
export type Call = {
  readonly database: Database;
  /** Throws a `ConfigError` if the connection to Temporal is not configured correctly. */
  readonly temporalConfig: () => TemporalConfig;
  readonly withTemporal: <T>(work: (temporal: Client) => Promise<T>) => Promise<T>;
  /** Authenticates the caller; empty if none is configured. The database looks up its operator. */
  readonly operatorKey: string;
  readonly id: string;
  readonly flags: Flags;
  readonly isJson: boolean;
  readonly isStuck: boolean;
  /** The command's settings, and the data directory of a local stack. */
  readonly environment: Environment;
  readonly directory?: string | undefined;
  /** URL of the namespace in the Temporal UI; undefined if not configured. */
  readonly temporalUi?: string | undefined;
};

/** Returns the value of a mandatory flag: one plain line, because others may read it in the audit log. */
export function requiredFlag(flags: Flags, name: string): string {
  const value = flags[name];
  if (value === undefined || value.trim() === '') throw new UsageError(`--${name} is missing.`);
  if (!isPlainLine(value)) throw new UsageError(`--${name} expects ${expectedLine}.`);
  return value;
}

/** Returns the ID that a command names. */
export function requiredId(what: string, { id }: Call): string {
  if (id === '')
    throw new UsageError(`The id of ${/^[aeiou]/.test(what) ? 'an' : 'a'} ${what} is missing.`);
  return id;
}

/** Returns the row that an ID names. Throws if there is none. */
export function existing<Row>(what: string, id: string, row: Row | undefined): Row {
  if (row === undefined) throw new Refused(`There is no ${what} ${id}.`);
  return row;
}

const timeForm = /^(\d{4}-\d\d-\d\d)T\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d)$/;

/** Parses a flag as a future time with a time zone. */
export function futureTime(flags: Flags, name: string): Date {
  const text = flags[name] ?? '';
  const time = new Date(isDay(timeForm.exec(text)?.[1] ?? '') ? text : Number.NaN);
  // NaN is greater than no number, so an invalid time is refused as well.
  if (time.getTime() > Date.now()) return time;
  throw new UsageError(`--${name} expects a time in the future, such as 2027-01-31T12:00:00Z.`);
}

/** Returns who runs a command and why. The audit log records both if the command changes something. */
export function signatureOf(call: Pick<Call, 'operatorKey' | 'flags'>): Signature {
  return { operatorKey: call.operatorKey, reason: requiredFlag(call.flags, 'reason') };
}
