import { readFileSync, writeFileSync } from 'node:fs';
import { constants, setPriority } from 'node:os';

/** At this priority, a process gets a tenth of the CPU time of a normal one that competes with it. */
const lowered = constants.priority.PRIORITY_BELOW_NORMAL;

/**
 * Lets every other process of the machine go first. On Linux a priority belongs to a thread: this one
 * applies to the calling thread and those it starts later, but not to the few that the SDK started
 * earlier to talk to the server. With autogroups (sched(7)), Linux divides CPU time between sessions
 * before it considers the processes in them: a process that is alone in its session has to lower the
 * session as well.
 */
export function lowerPriority(): void {
  setPriority(lowered);
  if (process.platform === 'linux' && isSessionLeader()) lowerSession();
}

/** Only a session's leader lowers the session: a process that shares one must not lower the others. */
function isSessionLeader(): boolean {
  const status = readFileSync('/proc/self/stat', 'utf8');
  // The program name, in parentheses, may contain spaces; the session ID is the fourth field after it.
  const session = status.slice(status.lastIndexOf(')') + 2).split(' ')[3];
  return session === `${process.pid}`;
}

function lowerSession(): void {
  try {
    writeFileSync('/proc/self/autogroup', `${lowered}`);
  } catch (error) {
    // The file is missing without autogroups, read-only in some containers, and allows a write per 100 ms.
    // Batches then take more of the machine, which is no reason not to process them.
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (!['ENOENT', 'EACCES', 'EPERM', 'EROFS', 'EAGAIN'].includes(code)) throw error;
  }
}
