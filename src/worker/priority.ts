import { readFileSync, writeFileSync } from 'node:fs';
import { constants, setPriority } from 'node:os';

/** A tenth of the processor's time that another process gets while both want it. */
const lowered = constants.priority.PRIORITY_BELOW_NORMAL;

/**
 * Lets every other process of the machine go first. On Linux a priority is a thread's: that of
 * the caller and of those it starts, and not of the few that the SDK has started before to talk to
 * the server. Linux shares the processors between sessions before it looks at the processes in
 * them, where it groups them (sched(7), autogroup): there a process that is alone in its session
 * has to lower the session as well.
 */
export function lowerPriority(): void {
  setPriority(lowered);
  if (process.platform === 'linux' && isSessionLeader()) lowerSession();
}

/** A process that shares its session with others must not lower them too. */
function isSessionLeader(): boolean {
  const status = readFileSync('/proc/self/stat', 'utf8');
  // The name of the program, in parentheses, may hold spaces; the session is the fourth after it.
  const session = status.slice(status.lastIndexOf(')') + 2).split(' ')[3];
  return session === `${process.pid}`;
}

function lowerSession(): void {
  try {
    writeFileSync('/proc/self/autogroup', `${lowered}`);
  } catch (error) {
    // Then batches take more of the machine, which is no reason not to process them.
    if (!isKernelsRefusal(error)) throw error;
  }
}

/** No such file without groups; not to be written in some containers; one change in 100 ms. */
function isKernelsRefusal(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return ['ENOENT', 'EACCES', 'EPERM', 'EROFS', 'EAGAIN'].includes(code);
}
