import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { commandOf, flagsOf } from '../../src/cli/help.js';
import { archiveCommand, backupGuide } from '../fixtures/backupSettings.js';

describe('the archive_command in docs/operations.md', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'corridor-archive-'));
    for (const name of ['archive', 'pg_wal', 'bin']) mkdirSync(join(folder, name));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  const segment = '000000010000000000000042';
  const archived = () => readFileSync(join(folder, 'archive', segment), 'utf8');
  /** Archives the segment as PostgreSQL does. */
  const archive = (path = process.env['PATH'] ?? '') => {
    const command = archiveCommand
      .replaceAll('/archive/', `${folder}/archive/`)
      .replaceAll('%p', `pg_wal/${segment}`)
      .replaceAll('%f', segment);
    execFileSync('sh', ['-c', command], { cwd: folder, env: { PATH: path }, stdio: 'pipe' });
  };

  it('keeps a segment that is archived, and archives one again whose copy was cut short', () => {
    writeFileSync(join(folder, 'pg_wal', segment), 'the whole segment');
    // Ends like cp on a full disk.
    const cp = join(folder, 'bin/cp');
    writeFileSync(cp, '#!/bin/sh\nprintf "the wh" > "$2"\nexit 1\n');
    chmodSync(cp, 0o755);
    expect(() => archive(`${folder}/bin:${process.env['PATH']}`)).toThrow('Command failed');
    expect(archived).toThrow('ENOENT');
    archive();
    expect(archived()).toBe('the whole segment');
    writeFileSync(join(folder, 'pg_wal', segment), 'another segment of this name');
    expect(() => archive()).toThrow('Command failed');
    expect(archived()).toBe('the whole segment');
  });
});

describe('the restore in docs/operations.md', () => {
  const [, steps = ''] = backupGuide.split('\nTo restore to a moment');
  /** The text of the step that begins with these words. */
  const step = (words: string) =>
    steps
      .split(/\n(?=\d\. |\n\S)/)
      .find((text) => /^\d\. (.*)/.exec(text)?.[1]?.startsWith(words)) ?? '';
  const commandsIn = (text: string) =>
    [...text.matchAll(/`corridor ([^`]+)`/g)].map(([, words = '']) => words.split(/\s+/));

  it('uses only commands and flags that exist', () => {
    expect(commandsIn(steps).length).toBeGreaterThan(10);
    for (const words of commandsIn(steps)) {
      const name = commandOf(words) ?? '';
      expect(name, words.join(' ')).not.toBe('');
      const flags = words.filter((word) => word.startsWith('--')).map((word) => word.slice(2));
      for (const flag of flags) expect(flagsOf(name), words.join(' ')).toHaveProperty(flag);
    }
  });

  it('keeps the record of what was done after the moment', () => {
    expect(commandsIn(step('Stop')).map(commandOf)).toEqual(['audit']);
    expect(step('Rename the data directory')).not.toBe('');
  });

  it('repeats what protects money and people, before the workers and the API start', () => {
    const repeated = new Set(commandsIn(step('Start PostgreSQL')).map(commandOf));
    const protecting = [
      ...['keys revoke', 'keys roll', 'operators revoke', 'operators roll'],
      ...['account freeze', 'account close', 'corridors close', 'batches pause', 'erase'],
      ...['limits set', 'limits new-payee', 'terms set', 'rates use', 'rates reject'],
    ];
    expect(protecting.filter((name) => !repeated.has(name))).toEqual([]);
    const starts = ['Start PostgreSQL', 'Start Temporal', 'Start the API'].map(step);
    expect(starts.map((text) => steps.indexOf(text))).toEqual(
      starts.map((text) => steps.indexOf(text)).toSorted((a, b) => a - b),
    );
    expect(starts).not.toContain('');
  });
});
