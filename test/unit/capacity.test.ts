import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const guide = readFileSync(`${root}docs/capacity.md`, 'utf8');

const run = (...args: readonly string[]) =>
  execFileSync(process.execPath, ['tools/capacity.mjs', ...args], { cwd: root, encoding: 'utf8' });

/** The figure of a line of what the tool prints. */
function figureOf(text: string, name: string): number {
  const line = text.split('\n').find((each) => each.startsWith(name));
  return Number.parseFloat(line?.slice(34).trim() ?? '');
}

describe('the capacity model', () => {
  it('prints what docs/capacity.md shows', () => {
    const [, command = '', output] =
      /```sh\nnode tools\/capacity\.mjs (.+)\n```\n\n```\n([^`]+)```/.exec(guide) ?? [];
    expect(run(...command.split(' '))).toBe(output);
  });

  it('grows with the load, and not with what has nothing to do with it', () => {
    const once = run('--singles', '100', '--batched', '0');
    const twice = run('--singles', '200', '--batched', '0');
    for (const name of ['API', 'worker', 'PostgreSQL  ', 'Temporal  ', 'all']) {
      const [one, two] = [figureOf(once, name), figureOf(twice, name)];
      expect(two / one, name).toBeGreaterThan(1.9);
      expect(two / one, name).toBeLessThan(2.1);
    }
    expect(figureOf(twice, 'size after a year')).toBe(figureOf(once, 'size after a year'));
  });

  it('says when connections run out, and when tables have to be partitioned', () => {
    expect(run('--singles', '1500')).toContain('more than max_connections');
    expect(run('--a-day', '59000000')).toContain('no partitions');
    expect(run('--a-day', '61000000')).toContain('partition by day');
  });

  it('takes what is measured from where it says that it was', () => {
    const performance = readFileSync(`${root}docs/performance.md`, 'utf8');
    const operations = readFileSync(`${root}docs/operations.md`, 'utf8');
    expect(performance).toContain('Corridor takes 72 ms');
    expect(performance).toContain('PostgreSQL (17 ms) and the API (6 ms)');
    expect(performance).toMatch(/21\s+events and 10 state transitions/);
    expect(performance).toContain('8.9 kB of write-ahead log');
    expect(performance).toContain('| 10,000 | 5.88 s | 2.58 s | 2.3 | 0.94 ms | 2.2 |');
    expect(operations).toMatch(/To delete a row takes\s+4 µs/);
  });

  it('names an input that it cannot use', () => {
    const { status, stderr } = spawnSync(
      process.execPath,
      ['tools/capacity.mjs', '--singles', 'many'],
      { cwd: root, encoding: 'utf8' },
    );
    expect([status, stderr]).toEqual([2, '--singles: expected a number, such as 20, not many\n']);
  });
});
