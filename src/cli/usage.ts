import type { Client } from '@temporalio/client';
import type { Environment } from '../config.js';
import type { Database } from '../db/client.js';
import { expectedLine, isPlainLine, type Signature } from '../domain/operator.js';

/** A command that was called wrongly: its message says what was expected. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** A command that was called rightly, and that is refused by what there is. */
export class Refused extends Error {
  override readonly name = 'Refused';
}

/** The flags of a command by their names, as they were typed. */
export type Flags = Readonly<Record<string, string | undefined>>;

/** A command as it was typed, with what it works on. `id` is empty where none was typed. */
export type Call = {
  readonly database: Database;
  readonly withTemporal: <T>(work: (temporal: Client) => Promise<T>) => Promise<T>;
  /** Proves who calls; empty where none is configured. The database looks who it is. */
  readonly operatorKey: string;
  readonly id: string;
  readonly flags: Flags;
  readonly isJson: boolean;
  readonly isStuck: boolean;
  /** What the command was configured with, and the data directory of a local stack. */
  readonly environment: Environment;
  readonly directory?: string | undefined;
  /** Where the Temporal UI is, and the namespace that it shows; undefined where nobody has said. */
  readonly temporalUi?: string | undefined;
};

/** A flag that cannot be left out. */
export function requiredFlag(flags: Flags, name: string): string {
  const value = flags[name];
  if (value !== undefined && value.trim() !== '') return value;
  throw new UsageError(`--${name} is missing.`);
}

/** The id that a command names. */
export function requiredId(what: string, { id }: Call): string {
  if (id === '') throw new UsageError(`The id of a ${what} is missing.`);
  return id;
}

/** The row that an id names, or a message that there is none. */
export function existing<Row>(what: string, id: string, row: Row | undefined): Row {
  if (row === undefined) throw new Refused(`There is no ${what} ${id}.`);
  return row;
}

const timeForm = /^(\d{4}-\d\d-\d\d)T\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d)$/;

/** A flag that names a time to come, with its zone. */
export function futureTime(flags: Flags, name: string): Date {
  const text = flags[name] ?? '';
  const day = timeForm.exec(text)?.[1] ?? '';
  const midnight = new Date(`${day}T00:00:00Z`);
  // JavaScript reads 31 February as a day of March.
  const isDay = !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day);
  const time = new Date(isDay ? text : Number.NaN);
  // No number is greater than NaN, so what is no time is refused as well.
  if (time.getTime() > Date.now()) return time;
  throw new UsageError(`--${name} expects a time to come, like 2027-01-31T12:00:00Z.`);
}

/** Who gives a command and why; each that changes something leaves them in the audit. */
export function signatureOf({
  operatorKey,
  flags,
}: Pick<Call, 'operatorKey' | 'flags'>): Signature {
  return { operatorKey, reason: reasonOf(flags) };
}

export function reasonOf(flags: Flags): string {
  const reason = requiredFlag(flags, 'reason');
  if (isPlainLine(reason)) return reason;
  throw new UsageError(`--reason expects ${expectedLine}.`);
}
