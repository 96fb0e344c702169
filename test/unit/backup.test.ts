import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { archiveCommand } from '../fixtures/backupSettings.js';

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
