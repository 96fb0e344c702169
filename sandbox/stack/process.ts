import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { CannotStart } from './cannotStart.js';

/** Number of last lines kept: enough for a stack trace or a server's error. The log has the rest. */
const lastWordsLines = 20;

/** Maximum length of a line, so that a part that never writes a newline does not fill the memory. */
const lineLength = 16_384;

/** Poll interval of readiness probes: start-up takes 1–30 s, so 100 ms more is not noticed. */
const probeIntervalMs = 100;

/** How long to wait for the output of a part that has exited: a grandchild may keep it open. */
const outputCloseTimeoutMs = 500;

/** How a process ended, with the last lines it wrote. */
export type Exit = {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly lastWords: readonly string[];
};

/** A running process of the stack. */
export type Part = {
  readonly name: string;
  readonly pid: number;
  /** The text that the ready line announced, such as a URL; empty if a probe was used. */
  readonly announced: string;
  /** Resolves when the process has exited for any reason; never rejects. */
  readonly exited: Promise<Exit>;
  /** Sends the stop signal, kills the process after a timeout and waits for its exit. */
  stop(): Promise<void>;
};

/** A part's stop signal. PostgreSQL stops at once on SIGINT, on SIGTERM only when all clients have left. */
export type StopSignal = 'SIGTERM' | 'SIGINT';

/** Called with every process as soon as it has been spawned; see `Claim.record`. */
export type OnSpawn = (pid: number, name: string, stopSignal: StopSignal) => void;

/** How to detect that a part is ready: by a line of its output or by a probe. */
type Readiness =
  | { readonly line: (line: string) => string | undefined }
  | { readonly probe: () => Promise<boolean> };

export type ProcessOptions = {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly cwd?: string;
  /** Run as this user, which only root may do. */
  readonly user?: { readonly uid: number; readonly gid: number } | undefined;
  /** Opens an IPC channel to a Node child, whose `disconnect` event tells it that its parent has exited. */
  readonly ipc?: boolean;
  readonly stopSignal?: StopSignal;
  readonly stopTimeoutMs?: number;
  readonly ready: Readiness;
  readonly readyTimeoutMs: number;
  readonly onLog: (line: string) => void;
  readonly onSpawn?: OnSpawn | undefined;
};

/** A part exited or timed out before it was ready. */
export class PartNotReady extends CannotStart {
  override readonly name = 'PartNotReady';
  readonly lastWords: readonly string[];

  constructor(name: string, reason: string, lastWords: readonly string[]) {
    super([`${name} ${reason}. Its last output:`, ...lastWords].join('\n  '));
    this.lastWords = lastWords;
  }
}

/**
 * Starts a process in its own process group, so that Ctrl-C in the terminal
 * reaches only the supervisor, and waits until it is ready.
 *
 * @throws PartNotReady if it exits or times out first, after stopping it;
 *   Error if the command cannot be started at all
 */
export async function startProcess(options: ProcessOptions): Promise<Part> {
  const { name, ready, stopSignal = 'SIGTERM', stopTimeoutMs = 10_000 } = options;
  const child = spawn(options.command, options.args, {
    env: options.env,
    cwd: options.cwd,
    ...options.user,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', ...(options.ipc === true ? ['ipc' as const] : [])],
  });
  let announce: (text: string) => void = () => {};
  const announcement = new Promise<string>((resolve) => {
    announce = resolve;
  });
  const lastWords = captureOutput(child, (line) => {
    options.onLog(line);
    const text = 'line' in ready ? ready.line(line) : undefined;
    if (text !== undefined) announce(text);
  });
  const exited = exitOf(child, lastWords);
  const pid = await pidOf(child, options.command);
  options.onSpawn?.(pid, name, stopSignal);
  const stop = async () => {
    const over = new AbortController();
    // Not if the child has exited, because its pid may belong to another process by now.
    const kill = () => child.exitCode ?? child.signalCode ?? sendSignal(-pid, 'SIGKILL');
    child.kill(stopSignal);
    const late = delay(stopTimeoutMs, undefined, { signal: over.signal }).then(kill);
    await Promise.race([exited, late]);
    over.abort();
    await exited;
  };
  try {
    const announced = await becomeReady(options, { announcement, exited, lastWords });
    return { name, pid, announced, exited, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

type Started = {
  readonly announcement: Promise<string>;
  readonly exited: Promise<Exit>;
  readonly lastWords: readonly string[];
};

async function becomeReady(options: ProcessOptions, started: Started): Promise<string> {
  const { name, ready, readyTimeoutMs } = options;
  const over = new AbortController();
  const died = started.exited.then(({ code, signal, lastWords }) => {
    throw new PartNotReady(name, `ended (${signal ?? `code ${code}`}) at its start`, lastWords);
  });
  const late = delay(readyTimeoutMs, undefined, { signal: over.signal }).then(() => {
    throw new PartNotReady(name, `was not ready within ${readyTimeoutMs} ms`, started.lastWords);
  });
  const answered =
    'probe' in ready ? probeUntilReady(ready.probe, over.signal) : started.announcement;
  try {
    return await Promise.race([answered, died, late]);
  } finally {
    over.abort();
  }
}

async function probeUntilReady(probe: () => Promise<boolean>, over: AbortSignal): Promise<string> {
  // Bounded by the caller's timeout, which aborts the signal.
  while (!over.aborted && !(await probe())) await delay(probeIntervalMs);
  return '';
}

/** Returns the pid. Throws a readable error if the command does not exist or is not executable. */
async function pidOf(child: ChildProcess, command: string): Promise<number> {
  if (child.pid !== undefined) return child.pid;
  const [cause]: unknown[] = await once(child, 'error');
  const reason = cause instanceof Error ? cause.message : String(cause);
  throw new CannotStart(`${command} cannot be started: ${reason}`, { cause });
}

async function exitOf(child: ChildProcess, lastWords: readonly string[]): Promise<Exit> {
  type Ending = Pick<Exit, 'code' | 'signal'>;
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const ending = await new Promise<Ending>((resolve) => {
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });
  await Promise.race([closed, delay(outputCloseTimeoutMs)]);
  return { ...ending, lastWords: [...lastWords] };
}

/** Signals a process, or with a negative pid its process group. Ignores processes that have exited. */
export function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}

export type CommandOptions = {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly cwd?: string;
  readonly user?: { readonly uid: number; readonly gid: number } | undefined;
  readonly timeoutMs: number;
};

/**
 * Runs a command to completion and returns its exit status and last lines.
 * After the timeout it is killed, which shows as `signal: 'SIGKILL'`.
 *
 * @throws Error if it cannot be started
 */
export async function runCommand(options: CommandOptions): Promise<Exit> {
  const child = spawn(options.command, options.args, {
    env: options.env,
    cwd: options.cwd,
    ...options.user,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: options.timeoutMs,
    killSignal: 'SIGKILL',
  });
  const words = captureOutput(child, () => {});
  await pidOf(child, options.command);
  return exitOf(child, words);
}

/** Splits the child's output into lines. The returned array always contains the last ones. */
function captureOutput(child: ChildProcess, onLine: (line: string) => void): readonly string[] {
  const words: string[] = [];
  const take = (line: string) => {
    if (line.trim() === '') return;
    words.push(line);
    if (words.length > lastWordsLines) words.shift();
    onLine(line);
  };
  if (child.stdout !== null) splitLines(child.stdout, take);
  if (child.stderr !== null) splitLines(child.stderr, take);
  return words;
}

function splitLines(stream: Readable, onLine: (line: string) => void): void {
  let rest = '';
  stream.setEncoding('utf8');
  stream.on('data', (text: string) => {
    const lines = (rest + text).split(/\r?\n/);
    rest = lines.pop() ?? '';
    if (rest.length > lineLength) {
      lines.push(rest);
      rest = '';
    }
    for (const line of lines) onLine(line);
  });
  stream.on('end', () => onLine(rest));
}
