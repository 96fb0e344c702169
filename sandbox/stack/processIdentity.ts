import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/**
 * Returns the start time of a process as an opaque text for comparison.
 * Together with the pid it identifies a process even if the pid is reused.
 * Undefined if there is no such process, or only a zombie.
 */
export function startTimeOf(pid: number): string | undefined {
  if (process.platform !== 'linux') return startTimeFromPs(pid);
  const stat = readProc(pid, 'stat');
  // The command name before the last bracket may contain spaces and brackets.
  const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ') ?? [];
  // proc_pid_stat(5): field 3 is the state and 22 the start time in clock ticks.
  const [state, startTime] = [fields[0], fields[19]];
  return state === undefined || /[ZX]/.test(state) ? undefined : startTime;
}

/** Returns a process's command line, with arguments separated by spaces; undefined if it has none. */
export function commandLineOf(pid: number): string | undefined {
  if (process.platform !== 'linux') return ps(pid, 'command=');
  return readProc(pid, 'cmdline')?.replaceAll('\0', ' ').trim();
}

/** Returns whether `pid` is still the process that was started at `startTime`. */
export function isStillRunning(pid: number, startTime: string): boolean {
  return startTimeOf(pid) === startTime;
}

function startTimeFromPs(pid: number): string | undefined {
  const isZombie = ps(pid, 'stat=')?.startsWith('Z') ?? true;
  return isZombie ? undefined : ps(pid, 'lstart=');
}

function ps(pid: number, column: string): string | undefined {
  const result = spawnSync('ps', ['-p', String(pid), '-o', column], {
    encoding: 'utf8',
    // The format of the start time must not depend on the caller's locale.
    env: { ...process.env, LC_ALL: 'C' },
  });
  if (result.error !== undefined) throw result.error;
  const text = result.stdout.trim();
  return text === '' ? undefined : text;
}

function readProc(pid: number, file: 'stat' | 'cmdline'): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    // No such file, or the process exited during the read.
    return undefined;
  }
}
