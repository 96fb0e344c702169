import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { CannotStart } from './cannotStart.js';

/** Enough for a stack trace or a server's reason to refuse; more belongs in a log. */
const lastWordsLines = 20;

/** Longest line kept whole: a part that never ends its line must not fill the memory. */
const lineLength = 16_384;

/** How often a probe asks: start-up takes 1–30 s, so 100 ms is not noticed. */
const probeIntervalMs = 100;

/** A part that has ended may leave its output open in a grandchild; we wait no longer. */
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
  /** What the ready line announced, a URL for instance; empty when a probe decided. */
  readonly announced: string;
  /** Resolves when the process has ended, for whatever reason; never rejects. */
  readonly exited: Promise<Exit>;
  /** Asks the process to end, kills it after a limit, and waits until it is gone. */
  stop(): Promise<void>;
};

/** What asks a part to end: PostgreSQL ends at once on SIGINT, on SIGTERM when all clients left. */
export type StopSignal = 'SIGTERM' | 'SIGINT';

/** Is called with every process as soon as it exists; see `Claim.record`. */
export type OnSpawn = (pid: number, name: string, stopSignal: StopSignal) => void;

/** How a part shows that it is ready: by a line of output, or by answering a question. */
type Readiness =
  | { readonly line: (line: string) => string | undefined }
  | { readonly probe: () => Promise<boolean> };

export type ProcessOptions = {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly cwd?: string;
  /** Run as this user, which only root may ask for. */
  readonly user?: { readonly uid: number; readonly gid: number } | undefined;
  /** Gives a Node child a channel whose `disconnect` tells it that its parent is gone. */
  readonly ipc?: boolean;
  readonly stopSignal?: StopSignal;
  readonly stopTimeoutMs?: number;
  readonly ready: Readiness;
  readonly readyTimeoutMs: number;
  readonly onLog: (line: string) => void;
  readonly onSpawn?: OnSpawn | undefined;
};

/** A part ended, or ran out of time, before it was ready. */
export class PartNotReady extends CannotStart {
  override readonly name = 'PartNotReady';
  readonly lastWords: readonly string[];

  constructor(name: string, reason: string, lastWords: readonly string[]) {
    super([`${name} ${reason}. Its last words:`, ...lastWords].join('\n  '));
    this.lastWords = lastWords;
  }
}

/**
 * Starts a process in a group of its own, so that Ctrl-C in the terminal
 * reaches only the supervisor, and waits until it is ready.
 *
 * @throws PartNotReady, with nothing left running, when it ends or the limit
 *   passes first; Error when the command cannot be started at all
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
    // A child that has ended is not signalled: its number may be a stranger's by now.
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
  // Bounded by the caller's limit, which aborts.
  while (!over.aborted && !(await probe())) await delay(probeIntervalMs);
  return '';
}

/** The pid, or a readable error where the command does not exist or may not be run. */
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

/** Signals a process, or with a negative pid its group; one that is gone is no error. */
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
 * Runs a command to its end and returns how it ended and its last lines.
 *
 * @throws Error when it cannot be started; past the limit it is killed, which
 *   shows as `signal: 'SIGKILL'`
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

/** Splits what the child writes into lines; the array returned always holds the last ones. */
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
