import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { attentionReasons } from '../../src/domain/payout.js';

const read = (path: string) =>
  readFileSync(fileURLToPath(new URL(`../../${path}`, import.meta.url)), 'utf8');

describe('docs/operations.md', () => {
  const operations = read('docs/operations.md');

  it.each(Object.entries(attentionReasons))('explains %s as the code does', (reason, meaning) => {
    expect(operations).toContain(`| \`${reason}\` | ${meaning} | `);
  });

  it('names every setting of the processes', () => {
    const settings = read('src/config.ts').match(/^ {2}[A-Z][A-Z0-9_]+(?=:)/gm) ?? [];
    expect(settings.length).toBeGreaterThan(40);
    const isNamed = (name: string) => new RegExp(`\\b${name}\\b`).test(operations);
    // The others are for a local stack.
    expect(settings.map((name) => name.trim()).filter((name) => !isNamed(name))).toEqual([
      'TEMPORAL_CLI_PATH',
      'XDG_CACHE_HOME',
      'PATH',
    ]);
  });
});

/** A row of "One payout, file by file": functions of a file, in the order of their calls. */
type Stop = { readonly file: string; readonly functions: readonly string[]; readonly on: string };

const missing: Stop = { file: '', functions: [], on: '' };

const named = (text: string) => [...text.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name);

/** The walks in docs/architecture.md: one per table in its section. */
function walksOf(architecture: string): readonly (readonly Stop[])[] {
  const [, section = ''] = architecture.split('### One payout, file by file\n');
  const tables = section.split('\n## ')[0]?.match(/(^\|.*\n)+/gm) ?? [];
  return tables.map((table) =>
    (table.match(/^\| `.*/gm) ?? []).map((row) => {
      const [, file = '', functions = '', on = ''] = row.split('|');
      return { file: named(file).join(), functions: named(functions), on: named(on).join() };
    }),
  );
}

/** The text of a function, from its name to the next item at the same depth. */
function textOf(source: string, name: string): string {
  const lines = source.split('\n');
  const defines = [
    `^ *(export )?(async )?function ${name}\\b`,
    `^ *(async )?${name}\\(.*\\{$`,
    `^ *(const ${name} =|${name}: (async )?\\()`,
  ].map((text) => new RegExp(text));
  const starts = defines.map((define) => lines.findIndex((line) => define.test(line)));
  const start = starts.find((index) => index >= 0);
  if (start === undefined) return '';
  const depth = (line: string) => line.search(/\S/);
  const isPast = (line: string) =>
    line !== '' && depth(line) <= depth(lines[start] ?? '') && !line.trimStart().startsWith(')');
  const end = lines.findIndex((line, index) => index > start && isPast(line));
  return lines.slice(start, end).join('\n');
}

const calls = (text: string, name: string) => new RegExp(`(?<![\\w.])${name}\\(`).test(text);

/** Calls that connect two files of which neither imports the other. */
const temporal = /^client\.workflow\.(start|signalWithStart)$/;
const indirections = ['localSubmit', 'ledger', 'rail', 'deliverer', 'sender'];

/** Whether the last step of this stop leads to the first function of the next one. */
function leadsTo({ on }: Stop, source: string, next: Stop, nextSource: string): boolean {
  const [first = ''] = next.functions;
  if (on === 'route.handle') return nextSource.includes(`\n    handle: ${first},`);
  if (temporal.test(on)) return source.includes(`'${first}'`);
  const [name, ...through] = on.split('.').reverse();
  const imported = `/${next.file.split('/').slice(-2).join('/')}`.replace(/\.ts$/, ".js'");
  const isKnown =
    through.length === 0 ? source.includes(imported) : indirections.includes(through.join());
  return name === first && isKnown;
}

/** Places where the code does not follow a walk, one line each. */
function detours(walk: readonly Stop[], sourceOf: (file: string) => string): readonly string[] {
  return walk.flatMap((stop, index) => {
    const source = sourceOf(stop.file);
    const steps = [...stop.functions, stop.on];
    const wrong = stop.functions.flatMap((name, at) => {
      const onwards = steps[at + 1] ?? '';
      const isThere = calls(textOf(source, name), onwards);
      return isThere ? [] : [`${stop.file}: ${name} does not call ${onwards}`];
    });
    const next = walk[index + 1];
    if (next === undefined) return stop.on === 'pool.request' ? wrong : [...wrong, 'no request'];
    if (leadsTo(stop, source, next, sourceOf(next.file))) return wrong;
    return [...wrong, `${stop.file}: ${stop.on} does not lead to ${next.file}`];
  });
}

describe('the walk through one payout in docs/architecture.md', () => {
  const walks = walksOf(read('docs/architecture.md'));
  const sourceOf = (file: string) => read(`src/${file}`);

  it('follows the calls of the code from the request to the bank, and from its callback to the webhook', () => {
    expect(walks.map((walk) => walk.length)).toEqual([6, 6]);
    expect(walks.flatMap((walk) => detours(walk, sourceOf))).toEqual([]);
    // Each walk begins where the request body is read.
    for (const [{ file, functions } = missing] of walks) {
      expect(calls(textOf(sourceOf(file), functions[0] ?? ''), 'readBody')).toBe(true);
    }
  });

  it('has not become longer', () => {
    const stops = walks.flat();
    expect(new Set(stops.map(({ file }) => file)).size).toBeLessThanOrEqual(10);
    expect(stops.flatMap(({ functions }) => functions).length).toBeLessThanOrEqual(30);
  });

  it('no longer matches when a function is inserted between two of its steps or removed', () => {
    const between = (file: string) =>
      sourceOf(file)
        .replace('await post(', 'await postCarefully(')
        .replace('return post(', 'return postCarefully(');
    expect(walks.flatMap((walk) => detours(walk, between))).toEqual([
      'webhooks/sender.ts: send does not call post',
    ]);
    const gone = (file: string) => sourceOf(file).replace('function submitGroup', 'function other');
    expect(walks.flatMap((walk) => detours(walk, gone))).toEqual([
      'activities/submission.ts: submitGroup does not call send',
    ]);
  });
});
