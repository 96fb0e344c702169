import {
  chmodSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { CannotStart } from './cannotStart.js';
import { type StopSignal, sendSignal } from './process.js';
import { isStillRunning, startTimeOf } from './processIdentity.js';

/** Timeout for stopping a left-over part, the same as in `startProcess`. */
const endTimeoutMs = 10_000;

/** Timeout for an exit after SIGKILL, exceeded only if the disk or a driver hangs. */
const killTimeoutMs = 5_000;

/** Maximum attempts to take the lock while other processes take or release it; a few are enough. */
const maxAttempts = 5;

const processSchema = z.object({ pid: z.int().positive(), startTime: z.string() });
const lockSchema = processSchema.extend({
  parts: z.array(
    processSchema.extend({ name: z.string(), stopSignal: z.enum(['SIGTERM', 'SIGINT']) }),
  ),
});
type Lock = z.infer<typeof lockSchema>;
type LockedPart = Lock['parts'][number];

/** The right to use a data directory, held by one supervisor at a time. */
export type Claim = {
  readonly directory: string;
  /** Whether only Corridor uses the directory, so that it is closed to other users. */
  readonly isPrivate: boolean;
  /**
   * Records a process as soon as it is started, so that the next supervisor can end it if this one
   * is killed. Has the type `OnSpawn`.
   */
  readonly record: (pid: number, name: string, stopSignal: StopSignal) => void;
  /** Releases the directory. To be called after all parts have been stopped. */
  release(): void;
};

/**
 * Takes the data directory for this process, creating it if needed. If the
 * previous supervisor is dead, takes over its lock and ends its processes
 * that still run, in reverse order of their start.
 *
 * @throws Error when a living supervisor holds the directory (its pid is in
 *   the message), or a left-over process cannot be ended
 */
export async function claimDataDirectory(directory: string): Promise<Claim> {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const isPrivate = closeToOthers(directory);
  const file = join(directory, 'supervisor.lock');
  const startTime = startTimeOf(process.pid);
  if (startTime === undefined) throw new Error('the start time of this process is unknown');
  const lock = takeLock(file, { pid: process.pid, startTime, parts: [] });
  for (const part of lock.parts.toReversed()) await endLeftOver(part);
  let parts: readonly LockedPart[] = [];
  const save = () => replaceFile(file, { ...lock, parts: [...parts] });
  save();
  return {
    directory,
    isPrivate,
    record(pid, name, stopSignal) {
      const started = startTimeOf(pid);
      if (started === undefined) return;
      const running = parts.filter((part) => isStillRunning(part.pid, part.startTime));
      parts = [...running, { pid, name, startTime: started, stopSignal }];
      save();
    },
    release: () => rmSync(file, { force: true }),
  };
}

/** Makes the directory private, unless it contains others' files, such as a home directory. */
function closeToOthers(directory: string): boolean {
  const found = readdirSync(directory);
  const ours = ['supervisor.lock', 'secrets.json'];
  const isOurs = found.length === 0 || ours.some((name) => found.includes(name));
  if (isOurs) chmodSync(directory, 0o700);
  return isOurs;
}

/** Writes our lock and returns it, including the parts of a dead supervisor that it replaces. */
function takeLock(file: string, own: Lock): Lock {
  let lock = own;
  for (let attempt = 1; attempt <= maxAttempts; attempt++) {
    if (createFile(file, lock)) return lock;
    const held = readLock(file);
    if (held === undefined) continue;
    if (isStillRunning(held.pid, held.startTime)) {
      throw new CannotStart(
        `The data directory is in use by Corridor with process id ${held.pid} (${file}). ` +
          'Stop that one first, or give this one its own directory with --data.',
      );
    }
    // Only one of several processes that saw the same dead lock can move it away. If another was faster,
    // we have moved that process's live lock and must put it back.
    const aside = `${file}.${process.pid}.dead`;
    if (!moveFile(file, aside)) continue;
    const moved = readLock(aside);
    if (moved?.pid === held.pid && moved.startTime === held.startTime) {
      lock = { ...own, parts: moved.parts };
    } else if (moved !== undefined) {
      createFile(file, moved);
    }
    rmSync(aside, { force: true });
  }
  throw new CannotStart(`The lock ${file} keeps changing hands; start one Corridor at a time.`);
}

async function endLeftOver({ pid, name, startTime, stopSignal }: LockedPart): Promise<void> {
  const isGone = () => !isStillRunning(pid, startTime);
  if (isGone()) return;
  sendSignal(pid, stopSignal);
  if (await waitUntil(isGone, endTimeoutMs)) return;
  // Each part leads its own process group, so this kills its children too.
  sendSignal(-pid, 'SIGKILL');
  if (await waitUntil(isGone, killTimeoutMs)) return;
  throw new CannotStart(
    `${name} (process id ${pid}), left over from a stack that died, does not stop.`,
  );
}

async function waitUntil(isTrue: () => boolean, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  // Polled, because there is no event for the end of a process that is not our child.
  while (!isTrue()) {
    if (performance.now() > deadline) return false;
    await delay(50);
  }
  return true;
}

function readLock(file: string): Lock | undefined {
  const text = unless('ENOENT', () => readFileSync(file, 'utf8'));
  if (text === undefined) return undefined;
  try {
    return lockSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw new CannotStart(
      `${file} is not a Corridor lock file. Delete it if no Corridor uses this data.`,
      { cause },
    );
  }
}

/** Creates the file atomically, so that nobody reads half a lock. False if it already exists. */
function createFile(file: string, lock: Lock): boolean {
  const temporary = writeBeside(file, lock);
  const created = unless('EEXIST', () => {
    linkSync(temporary, file);
    return true;
  });
  rmSync(temporary);
  return created ?? false;
}

function replaceFile(file: string, lock: Lock): void {
  renameSync(writeBeside(file, lock), file);
}

function writeBeside(file: string, lock: Lock): string {
  const temporary = `${file}.${process.pid}.new`;
  writeFileSync(temporary, JSON.stringify(lock, null, 2));
  return temporary;
}

function moveFile(from: string, to: string): boolean {
  const moved = unless('ENOENT', () => {
    renameSync(from, to);
    return true;
  });
  return moved ?? false;
}

/** Returns the result, or undefined if the file system fails with this one expected error. */
function unless<Result>(code: 'ENOENT' | 'EEXIST', run: () => Result): Result | undefined {
  try {
    return run();
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === code) return undefined;
    throw error;
  }
}
