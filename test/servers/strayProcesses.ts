import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { sendSignal } from '../../sandbox/stack/process.js';
import { commandLineOf, startTimeOf } from '../../sandbox/stack/processIdentity.js';

export type StrayProcess = { readonly pid: number; readonly command: string };

/**
 * The processes that carry the mark in the environment they were started with, or work in
 * the directory: PostgreSQL's backends overwrite their environment with their titles, and
 * stand in the cluster's folder. Only Linux shows both, in `/proc`; elsewhere it finds none.
 */
export function strayProcesses(mark: string, directory: string): readonly StrayProcess[] {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => Number.parseInt(name, 10))
    .filter((pid) => startTimeOf(pid) !== undefined && belongs(pid, mark, directory))
    .map((pid) => ({ pid, command: commandLineOf(pid) ?? '' }));
}

/** Ends them at once: what a failed test leaves must not disturb the next. */
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
    // It ended while it was looked at, or belongs to somebody else: not ours.
    return false;
  }
}
