import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const guide = readFileSync(`${root}docs/capacity.md`, 'utf8');

const runTool = (tool: string, args: readonly string[]) =>
  execFileSync(process.execPath, [tool, ...args], { cwd: root, encoding: 'utf8' });
const run = (...args: readonly string[]) => runTool('tools/capacity.mjs', args);

/** The figure in one line of the tool's output. */
function figureOf(text: string, name: string): number {
  const line = text.split('\n').find((each) => each.startsWith(name));
  return Number.parseFloat(line?.slice(34).trim() ?? '');
}

const numberIn = (text: string) => Number(text.replaceAll(',', ''));

describe('the capacity model', () => {
  it('prints the output that docs/capacity.md shows, and so does its simulation', () => {
    const shown = guide.matchAll(/```sh\nnode (tools\/\S+) (.+)\n```\n\n```\n([^`]+)```/g);
    const tools = [...shown].map(([, tool = '', args = '', output]) => {
      expect(runTool(tool, args.split(' ')), tool).toBe(output);
      return tool;
    });
    expect(tools).toEqual(['tools/capacity.mjs', 'tools/scaling.mjs']);
  });

  it('simulates the same throughput per core as long as each core has workers', () => {
    const [, ...rows] = runTool('tools/scaling.mjs', ['--machines', '2x1,8x4,8x2']).split('\n');
    const ofCore = rows.map((row) => row.trim().split(/\s{2,}/)[3]);
    expect(ofCore[1]).toBe(ofCore[0]);
    expect(Number(ofCore[2])).toBeLessThan(Number(ofCore[0]));
  });

  it('scales what depends on the load, and nothing else', () => {
    const once = run('--singles', '100', '--batched', '0');
    const twice = run('--singles', '200', '--batched', '0');
    for (const name of ['API', 'worker', 'PostgreSQL  ', 'Temporal  ', 'all']) {
      const [one, two] = [figureOf(once, name), figureOf(twice, name)];
      expect(two / one, name).toBeGreaterThan(1.9);
      expect(two / one, name).toBeLessThan(2.1);
    }
    expect(figureOf(twice, 'size after a year')).toBe(figureOf(once, 'size after a year'));
  });

  it('warns when connections run out and when tables need partitions', () => {
    expect(run('--singles', '1500')).toContain('more than max_connections');
    expect(run('--a-day', '59000000')).toContain('no partitions');
    expect(run('--a-day', '61000000')).toContain('partition by day');
  });

  it('uses the figures of the pages that it cites', () => {
    const performance = readFileSync(`${root}docs/performance.md`, 'utf8');
    expect(performance).toContain(
      'Corridor took 72 ms, of which PostgreSQL (17 ms) and the API (6 ms)',
    );
    expect(performance).toContain('| history events, state transitions | 21, 10 | 14, 6 |');
    expect(performance).toContain('8.9 kB of write-ahead log');
    expect(performance).toContain('| 10,000 | 5.88 s | 2.58 s | 2.3 | 0.94 ms | 2.2 |');
    expect(guide).toContain('To delete a row takes 4 µs');
  });

  it('has the size of a payout that docs/operations.md has measured', () => {
    const operations = readFileSync(`${root}docs/operations.md`, 'utf8');
    const [, measured = ''] = operations.split('| Table | Rows, bytes | Indexes, bytes |\n');
    const rows = measured.split('\n\n')[0]?.match(/^\| `.*/gm) ?? [];
    const sizeOf = (row: string) => {
      const [, , ofRows = '', ofIndexes = ''] = row.split('|');
      return numberIn(ofRows) + numberIn(ofIndexes);
    };
    const isDeliveries = (row: string) => row.startsWith('| `deliveries` |');
    const sum = (some: readonly string[]) => some.reduce((all, row) => all + sizeOf(row), 0);
    const kept = sum(rows.filter((row) => !isDeliveries(row)));
    const retained = sum(rows.filter(isDeliveries));
    const [, forever = '', days = ''] = /\| (\S+) bytes forever, (\S+) for 30/.exec(guide) ?? [];
    expect([kept, retained]).toEqual([numberIn(forever), numberIn(days)]);
    const inputs = run('--help');
    expect(inputs).toMatch(new RegExp(`--kept-bytes +${kept} `));
    expect(inputs).toMatch(new RegExp(`--retained-bytes +${retained} `));
  });

  it('agrees with the simulation on the throughput of a core', () => {
    const [, row = ''] = runTool('tools/scaling.mjs', ['--machines', '2x1']).split('\n');
    const ofCore = Number(row.trim().split(/\s{2,}/)[3]);
    expect(figureOf(run(), 'single payouts a core carries')).toBe(ofCore);
  });

  it.each([
    ['capacity', '--singles', 'many', 'a number, such as 20'],
    ['scaling', '--worker-ms', 'many', 'a number, such as 25'],
    ['scaling', '--machines', '8x1.3', 'cores x processes, such as 2x1,4x2,8x2,8x4,16x4,16x8'],
  ])('names the invalid input of %s: %s %s', (tool, name, input, expected) => {
    const { status, stderr } = spawnSync(process.execPath, [`tools/${tool}.mjs`, name, input], {
      ...{ cwd: root, encoding: 'utf8' },
    });
    expect([status, stderr]).toEqual([2, `${name}: expected ${expected}, not ${input}\n`]);
  });
});
