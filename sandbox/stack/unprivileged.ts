import { existsSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { CannotStart } from './cannotStart.js';
import { type CommandOptions, runCommand } from './process.js';

/** Timeout of a reachability check, which runs only a shell. */
const checkTimeoutMs = 10_000;

export type User = { readonly uid: number; readonly gid: number };

/** Returns the options with which `startProcess` and `runCommand` run a program as the right user. */
export type Launch = (program: string, args: readonly string[]) => Launched;

type Launched = Pick<CommandOptions, 'command' | 'args' | 'env' | 'cwd' | 'user'>;

/**
 * Returns the user that PostgreSQL has to run as. It refuses to run as root,
 * so under root this is the owner of the existing cluster, or for a new one
 * `postgres` or `nobody`. Undefined means the current user, if that is not root.
 *
 * @throws Error if an existing cluster belongs to another user
 */
export async function ownerFor(cluster: string): Promise<User | undefined> {
  const isRoot = process.getuid?.() === 0;
  if (existsSync(cluster)) {
    const { uid, gid } = await stat(cluster);
    if (isRoot) return { uid, gid };
    if (process.getuid === undefined || uid === process.getuid()) return undefined;
    throw new CannotStart(
      `${cluster} belongs to user ${uid}, who created it, and PostgreSQL serves only its own ` +
        'files. Start as that user (or as root if root did), or give another --data.',
    );
  }
  if (!isRoot) return undefined;
  const lines = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'));
  for (const name of ['postgres', 'nobody']) {
    const [, , uid, gid] = lines.find(([user]) => user === name) ?? [];
    if (uid !== undefined && gid !== undefined) return { uid: Number(uid), gid: Number(gid) };
  }
  throw new CannotStart(
    'PostgreSQL refuses to run as root and there is no user postgres or nobody to run it as. ' +
      'Start as an ordinary user, or set DATABASE_URL to a PostgreSQL of your own.',
  );
}

/**
 * Returns how to run programs as `user` so that they can access `directories`.
 * If the user cannot, as with a checkout under /root, the programs keep root's
 * CAP_DAC_OVERRIDE (through util-linux `setpriv`), and this is logged.
 *
 * @throws Error naming the directory if neither way can access it
 */
export async function launchAs(
  user: User | undefined,
  directories: readonly string[],
  onLog: (line: string) => void,
): Promise<Launch> {
  const plain: Launch = (command, args) => ({ ...surroundings, command, args, user });
  const unreachable = await firstUnreachable(plain, directories);
  if (user === undefined || unreachable === undefined) return plain;
  const rights = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override'];
  const identity = [`--reuid=${user.uid}`, `--regid=${user.gid}`, '--clear-groups'];
  const privileged: Launch = (program, args) => ({
    ...surroundings,
    command: 'setpriv',
    args: [...identity, ...rights, program, ...args],
  });
  if ((await firstUnreachable(privileged, directories)) === undefined) {
    onLog(`User ${user.uid} cannot access ${unreachable}: PostgreSQL keeps CAP_DAC_OVERRIDE.`);
    return privileged;
  }
  throw new CannotStart(
    `PostgreSQL refuses to run as root, so it runs as user ${user.uid}, who cannot access ` +
      `${unreachable}. Move it to a place that every user can access (--data, or the whole checkout), ` +
      'start as an ordinary user, or set DATABASE_URL to a PostgreSQL of your own.',
  );
}

/** Untranslated messages, and a working directory that every user may enter. */
const surroundings = { env: { ...process.env, LC_ALL: 'C' }, cwd: '/' };

async function firstUnreachable(
  launch: Launch,
  directories: readonly string[],
): Promise<string | undefined> {
  for (const directory of directories) {
    const enter = launch('/bin/sh', ['-c', 'cd -- "$1"', 'sh', directory]);
    // A launcher that is not installed counts as unable to access the directory.
    const exit = await runCommand({ ...enter, timeoutMs: checkTimeoutMs }).catch(() => undefined);
    if (exit?.code !== 0) return directory;
  }
  return undefined;
}
