import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { sendSignal } from '../../sandbox/stack/process.js';
import { commandLineOf, startTimeOf } from '../../sandbox/stack/processIdentity.js';

export type StrayProcess = { readonly pid: number; readonly command: string };

/**
 * Returns the processes that have the mark in their initial environment or whose working directory
 * is within the directory. PostgreSQL's backends need the latter: they overwrite their environment
 * with their titles, but work in the cluster's folder. Only Linux shows both, in `/proc`;
 * elsewhere the result is empty.
 */
export function strayProcesses(mark: string, directory: string): readonly StrayProcess[] {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => Number.parseInt(name, 10))
    .filter((pid) => startTimeOf(pid) !== undefined && belongs(pid, mark, directory))
    .map((pid) => ({ pid, command: commandLineOf(pid) ?? '' }));
}

/** Kills them immediately, so that processes of a failed test do not disturb the next. */
export function killStrayProcesses(mark: string, directory: string): void {
  for (const { pid } of strayProcesses(mark, directory)) sendSignal(pid, 'SIGKILL');
}

function belongs(pid: number, mark: string, directory: string): boolean {
  try {
    return (
      readFileSync(`/proc/${pid}/environ`, 'utf8').includes(mark) ||
      readlinkSync(`/proc/${pid}/cwd`).startsWith(directory)
    );
  } catch {
    // The process has ended meanwhile or belongs to another user: not ours.
    return false;
  }
}
