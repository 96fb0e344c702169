import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/**
 * When the process `pid` was started, as an opaque text to compare: together
 * with the pid it tells a process from a later one that was given its number.
 * Undefined when there is none, or only a zombie that nobody has collected.
 */
export function startTimeOf(pid: number): string | undefined {
  if (process.platform !== 'linux') return startTimeFromPs(pid);
  const stat = readProc(pid, 'stat');
  // The command name before the last bracket may hold blanks and brackets.
  const fields = stat?.slice(stat.lastIndexOf(')') + 2).split(' ') ?? [];
  // proc_pid_stat(5): field 3 is the state and 22 the start time in clock ticks.
  const [state, startTime] = [fields[0], fields[19]];
  return state === undefined || /[ZX]/.test(state) ? undefined : startTime;
}

/** The command line of a process, blanks between arguments; undefined without one. */
export function commandLineOf(pid: number): string | undefined {
  if (process.platform !== 'linux') return ps(pid, 'command=');
  return readProc(pid, 'cmdline')?.replaceAll('\0', ' ').trim();
}

/** Whether `pid` is still the process that was started at `startTime`. */
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
    // The start time must read the same whatever the caller's language is.
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
    // No such file, or the process ended while it was read: it is gone.
    return undefined;
  }
}
