import { execFileSync } from 'node:child_process';
import { WorkflowUpdateRPCTimeoutOrCancelledError } from '@temporalio/client';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { countOf } from '../../src/cli/amounts.js';
import { databaseCommands } from '../../src/cli/databaseCommands.js';
import {
  commandNames,
  commandOf,
  completion,
  flagsOf,
  helpOn,
  unknownCommand,
  wordsAfter,
} from '../../src/cli/help.js';
import { payoutCommands } from '../../src/cli/payouts.js';
import { reportFailure } from '../../src/cli/run.js';
import { printJson, wrapped } from '../../src/cli/table.js';

// One table defines all commands: parsing, help and completion are derived from it.

/** The commands that main.ts runs without a database. */
const local = ['start', 'demo', 'rehearse', 'listen', 'sign-in', 'completion', 'help'];

it('every command has an implementation', () => {
  const done = [...Object.keys(databaseCommands), ...Object.keys(payoutCommands), ...local];
  expect(new Set(done)).toEqual(new Set(commandNames));
});

describe.each(commandNames)('corridor help %s', (name) => {
  const help = helpOn(name.split(' ')) ?? '';

  it('fits a terminal, except for examples to copy', () => {
    const lines = help.split('\n').filter((line) => !line.startsWith('  $ '));
    expect(lines.filter((line) => line.length > 80)).toEqual([]);
  });

  it('has examples that use only flags and words of the command', () => {
    const examples = help.split('\n').filter((line) => line.startsWith('  $ '));
    expect(examples).not.toEqual([]);
    for (const example of examples) {
      const [, words = ''] = example.split('corridor ');
      const used = commandOf(words.split(/[ )]/)) ?? '';
      const known = flagsOf(used);
      for (const [, flag = ''] of example.matchAll(/ --([a-z-]+)/g))
        expect(known).toHaveProperty(flag);
    }
  });
});

it('help lists all commands in 80 columns, or only those that begin with a word', () => {
  const all = helpOn([]) ?? '';
  expect(all.split('\n').filter((line) => line.length > 80)).toEqual([]);
  for (const name of commandNames) expect(all).toContain(`  ${name} `);
  expect(helpOn(['batches'])?.split('\n')).toHaveLength(4);
  expect(helpOn(['nonsense'])).toBeUndefined();
});

it.each([
  [['strat'], 'Did you mean start?'],
  [['payouts', 'lst'], 'Did you mean payouts list?'],
  [['payout', 'show'], 'Did you mean payouts show?'],
  [['payouts'], '"payouts" needs a subcommand: list, show, retry'],
  [['batches'], '"batches" needs a subcommand: list, show, pause, resume.'],
  [['limits', 'raise'], 'There is no command "limits raise": limits takes show, set, new-payee.'],
  [['nonsense'], 'There is no command "nonsense".'],
  [[], 'A command is missing.'],
])('%j is not a command: %s', (words, message) => {
  expect(unknownCommand(words)).toContain(message);
});

it('reads flags with and without values, and arguments, from the usage line', () => {
  expect(flagsOf('payouts list')).toMatchObject({ stuck: 'boolean', 'older-than': 'string' });
  expect(flagsOf('payouts show')).not.toHaveProperty('reason');
  expect(flagsOf('payouts fail')).toMatchObject({ reason: 'string', 'statement-date': 'string' });
  expect(['payouts list', 'payouts show', 'rates use'].map(wordsAfter)).toEqual([0, 1, 1]);
});

it('reads a whole number in a range, and states the range', () => {
  const days = (text: string) => countOf('days', text, 'a number of days', [1, 366]);
  expect(['1', '030', '366'].map(days)).toEqual([1, 30, 366]);
  for (const text of ['', '0', '367', '-1', '1.5', '1e2', ' 7', '٣', '000001'])
    expect(() => days(text), text).toThrow('--days expects a number of days, 1 to 366.');
});

it('wraps lines between words', () => {
  expect(wrapped('word '.repeat(40).trim(), '  ').split('\n')).toEqual([
    `  ${'word '.repeat(15).trim()}`,
    `  ${'word '.repeat(15).trim()}`,
    `  ${'word '.repeat(10).trim()}`,
  ]);
});

it('prints no control character of a customer or a bank', () => {
  // Clears the screen, writes to the clipboard, and reverses the text.
  const hostile = 'metadata[\u001b[2J\u009d52;c;Zm9v\u0007\u202e]';
  expect(wrapped(hostile, '  ')).toBe('  metadata[?[2J?52;c;Zm9v??]');
  const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
  onTestFinished(() => log.mockRestore());
  printJson({ detail: hostile, sum: 5n });
  const [[json = ''] = []] = log.mock.calls;
  expect(json).not.toMatch(/[^\n\u0020-\u007e]/);
  expect(JSON.parse(json)).toEqual({ detail: hostile, sum: '5' });
});

it.each([
  [['corridor', 'pay'], 'payouts'],
  [['corridor', 'payouts', 'sh'], 'show'],
  [['corridor', 'payouts', 'fail', 'po_1', '--st'], '--statement-date'],
])('completes %j to %s', (words, expected) => {
  const script = `${completion('bash')}
    COMP_WORDS=(${words.join(' ')}) COMP_CWORD=${words.length - 1}
    _corridor; echo "\${COMPREPLY[@]}"`;
  expect(execFileSync('bash', ['-c', script], { encoding: 'utf8' })).toBe(`${expected}\n`);
  expect(completion('zsh')).toContain('bashcompinit');
  expect(completion('fish')).toBeUndefined();
});

it('a command without an answer says that it may still be executed', () => {
  const printed = vi.spyOn(console, 'error').mockReturnValue(undefined);
  const late = new WorkflowUpdateRPCTimeoutOrCancelledError('4 DEADLINE_EXCEEDED');
  expect(reportFailure(late, ['payouts', 'settle'])).toBe(3);
  expect(printed.mock.calls).toEqual([[expect.stringContaining('may still be executed')]]);
  printed.mockRestore();
});
