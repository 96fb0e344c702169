import { readFileSync } from 'node:fs';
import {
  expectedLine,
  expectedName,
  isPlainLine,
  operatorName,
  type Signature,
} from '../domain/operator.js';

/** A command that was called wrongly: its message says what was expected. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The flags of a command by their names, as they were typed. */
export type Flags = Readonly<Record<string, string | boolean | undefined>>;

/** A flag that cannot be left out. */
export function requiredFlag(flags: Flags, name: string): string {
  const value = flags[name];
  if (typeof value === 'string' && value.trim() !== '') return value;
  throw new UsageError(`--${name} is missing.`);
}

/** Who gives a command and why; each that changes something leaves them in the audit. */
export function signatureOf(flags: Flags): Signature {
  const operator = operatorName(requiredFlag(flags, 'operator'));
  if (operator === undefined) throw new UsageError(`--operator expects ${expectedName}.`);
  const reason = requiredFlag(flags, 'reason');
  if (!isPlainLine(reason)) throw new UsageError(`--reason expects ${expectedLine}.`);
  return { operator, reason };
}

/** What `corridor --help` shows, and who calls a command wrongly. */
export const usage = readFileSync(new URL('usage.txt', import.meta.url), 'utf8').trimEnd();
