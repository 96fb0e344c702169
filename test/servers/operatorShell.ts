import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { listenOnAnyPort } from '../../sandbox/stack/ports.js';
import { findTemporalCli } from '../../sandbox/stack/temporalBinary.js';
import { eventually } from '../assertions/eventually.js';
import {
  partOfEntry,
  type RunbookPart,
  type Shown,
  type Threshold,
} from '../fixtures/runbookEntries.js';
import { finderOptions } from './finders.js';

const cli = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));

/** Time limit for a repair to show: it may take one sweep, and the machine may be busy. */
const shownLimitMs = 60_000;

/** Pause between two checks. Each check starts a process or reads every process's metrics page. */
const pollPauseMs = 1_500;

type Env = Readonly<Record<string, string>>;

/** Stands in for a program that tests cannot use. Returns what the program would print. */
export type Tool = (args: readonly string[], env: Env) => Promise<string>;

export type Printed = { readonly code: number; readonly output: string };

/** An operator's terminal: `corridor` and `temporal` are real, `tools` are stand-ins for other programs. */
export type OperatorShell = {
  /** The working directory of the commands. */
  readonly directory: string;
  readonly run: (command: string, more?: Env) => Promise<Printed>;
  readonly close: () => Promise<void>;
};

const toolCall = z.object({
  tool: z.string(),
  args: z.array(z.string()),
  env: z.record(z.string(), z.string()),
});

/** The script that stands in for a program: it forwards the call to the test, which answers. */
const stub = (tool: string, url: string) => `#!${process.execPath}
const body = JSON.stringify({ tool: '${tool}', args: process.argv.slice(2), env: process.env });
fetch('${url}', { method: 'POST', body }).then(async (answer) => {
  process.stdout.write(await answer.text());
  process.exitCode = answer.ok ? 0 : 1;
});
`;

export async function openOperatorShell(
  env: () => Env,
  tools: Readonly<Record<string, Tool>>,
): Promise<OperatorShell> {
  const directory = await mkdtemp(join(tmpdir(), 'corridor-operator-'));
  const answer = async (request: IncomingMessage): Promise<string> => {
    const { tool, args, env: callerEnv } = toolCall.parse(JSON.parse(await text(request)));
    const act = tools[tool];
    if (act === undefined) throw new Error(`The shell has no tool ${tool}.`);
    return act(args, callerEnv);
  };
  const server = createServer((request, response) => {
    answer(request).then(
      (output) => response.end(output),
      (error: unknown) => response.writeHead(500).end(`${String(error)}\n`),
    );
  });
  const url = `http://127.0.0.1:${await listenOnAnyPort(server)}`;
  const programs = { corridor: `#!/bin/sh\nexec '${process.execPath}' '${cli}' "$@"\n` };
  const stubs = Object.keys(tools).map((tool) => [tool, stub(tool, url)]);
  for (const [name = '', script = ''] of [...Object.entries(programs), ...stubs])
    await writeFile(join(directory, name), script, { mode: 0o755 });
  await symlink(
    await findTemporalCli(finderOptions('TEMPORAL_CLI_PATH')),
    join(directory, 'temporal'),
  );
  const path = `${directory}:${process.env['PATH']}`;
  return {
    directory,
    run: (command, more = {}) =>
      runShell(command, directory, { ...process.env, ...env(), ...more, PATH: path }),
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
      await rm(directory, { recursive: true });
    },
  };
}

async function runShell(command: string, cwd: string, env: NodeJS.ProcessEnv): Promise<Printed> {
  const shell = spawn('bash', ['-c', command], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const closed = once(shell, 'close');
  const [output, errors] = await Promise.all([text(shell.stdout), text(shell.stderr)]);
  const [code] = await closed;
  return { code: typeof code === 'number' ? code : -1, output: output + errors };
}

/** Values for the placeholders in capitals: a text, or a pattern to find in the earlier output. */
export type Words = Readonly<Record<string, string | RegExp>>;

/** Follows an entry of the runbooks as a reader would. */
export type Walk = {
  /** Waits until everything that this part of the entry shows has been printed. */
  readonly seen: (part: 'Symptoms.' | 'It worked when') => Promise<void>;
  /** Runs the entry's next commands: all that remain, or those before the first that contains `until`. */
  readonly follow: (until?: string) => Promise<void>;
  /** Everything printed so far. */
  readonly printed: () => string;
};

/** Commands that may exit with 1: it means that they found something, which is their purpose. */
const findsSomething = /^corridor (doctor|reconcile)/;

export function followRunbook(shell: OperatorShell, title: string, words: Words): Walk {
  const known = new Map<string, string>();
  for (const [word, value] of Object.entries(words))
    if (typeof value === 'string') known.set(word, value);
  const left = [...partOfEntry(title, 'Commands.').commands];
  let transcript = '';
  let last = '';

  const run = async (command: string): Promise<Printed> => {
    const printed = await shell.run(filled(command, known, quoted));
    transcript += printed.output;
    const allowed = findsSomething.test(command) ? [0, 1] : [0];
    if (!allowed.includes(printed.code))
      throw new Error(`${title}: ${command} ended with ${printed.code}:\n${printed.output}`);
    return printed;
  };
  /** Finds the values of the command's unknown placeholders in the earlier output. */
  const resolvePlaceholders = async (command: string): Promise<void> => {
    for (const [word, pattern] of Object.entries(words)) {
      if (known.has(word) || typeof pattern === 'string') continue;
      if (!new RegExp(`\\b${word}\\b`).test(command)) continue;
      const found = await eventually(`${title}: ${word} for ${command}`, shownLimitMs, async () => {
        const match = pattern.exec(transcript);
        if (match !== null) return match;
        if (last !== '') await run(last);
        await delay(pollPauseMs);
        return undefined;
      });
      known.set(word, found[1] ?? found[0]);
    }
  };
  const waitForOutput = async ({ command, lines }: Shown): Promise<void> => {
    const wanted = new RegExp(
      lines.map((line) => patternOf(line, known, words)).join('[^]*?'),
      'm',
    );
    let output = '';
    await eventually(`${title}: ${command}`, shownLimitMs, async () => {
      ({ output } = await run(command));
      return wanted.test(output) ? true : delay(pollPauseMs);
    }).catch((error: unknown) => {
      throw new Error(`${title}: ${command} does not print ${wanted}:\n${output}`, {
        cause: error,
      });
    });
  };
  return {
    seen: async (part) => {
      for (const shown of partOfEntry(title, part).shown) {
        await resolvePlaceholders(shown.command);
        await waitForOutput(shown);
        last = shown.command;
      }
    },
    follow: async (until) => {
      for (;;) {
        const [command] = left;
        if (command === undefined || (until !== undefined && command.includes(until))) return;
        await resolvePlaceholders(command);
        await run(command);
        last = command;
        left.shift();
      }
    },
    printed: () => transcript,
  };
}

const quoted = (value: string) => (/^[\w:./-]+$/.test(value) ? value : `'${value}'`);

/** Replaces the known placeholders in a text. A placeholder within a longer word is left alone. */
function filled(
  text: string,
  known: ReadonlyMap<string, string>,
  write: (value: string) => string,
): string {
  return [...known].reduce(
    (result, [word, value]) =>
      result.replaceAll(new RegExp(`(?<![\\w$])${word}(?![\\w=])`, 'g'), () => write(value)),
    text,
  );
}

/** Turns a line of a `console` block into a pattern: "…" matches anything, a space any white space. */
function patternOf(line: string, known: ReadonlyMap<string, string>, words: Words): string {
  const escaped = filled(line, known, (value) => value)
    .trim()
    .replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&')
    .replaceAll(/\s+/g, '\\s+')
    .replaceAll('…', '.*?');
  const open = Object.entries(words).flatMap(([word, value]) =>
    known.has(word) || typeof value === 'string' ? [] : [[word, value.source] as const],
  );
  const pattern = open.reduce(
    (result, [word, source]) => result.replaceAll(new RegExp(`\\b${word}\\b`, 'g'), () => source),
    escaped,
  );
  return `^\\s*${pattern}\\s*$`;
}

/** A metric's values on the metrics pages, for the series that have all the labels. */
function valuesOf(pages: string, { metric, labels }: Threshold): readonly number[] {
  const wanted = labels.split(',').flatMap((label) => label.trim() || []);
  return pages.split('\n').flatMap((line) => {
    const [, name, its = '', value = ''] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    const isOne = name === metric && wanted.every((label) => its.includes(label));
    return isOne ? [Number.parseFloat(value)] : [];
  });
}

/**
 * Reads the current values of the metrics in an entry's symptoms. The returned function waits until
 * each metric has changed and is above the entry's threshold.
 */
export async function watchSymptoms(
  title: string,
  readMetrics: () => Promise<string>,
): Promise<() => Promise<void>> {
  const { thresholds }: RunbookPart = partOfEntry(title, 'Symptoms.');
  const highest = (pages: string, threshold: Threshold) =>
    Math.max(0, ...valuesOf(pages, threshold));
  const pages = thresholds.length === 0 ? '' : await readMetrics();
  const before = thresholds.map((threshold) => highest(pages, threshold));
  return async () => {
    for (const [at, threshold] of thresholds.entries()) {
      const { metric, labels, above } = threshold;
      await eventually(`${title}: ${metric}{${labels}} > ${above}`, shownLimitMs, async () => {
        const value = highest(await readMetrics(), threshold);
        return value > above && value !== before[at] ? true : delay(pollPauseMs);
      });
    }
  };
}
