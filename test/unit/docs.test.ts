import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { attentionReasons } from '../../src/domain/payout.js';

const operations = readFileSync(
  fileURLToPath(new URL('../../docs/operations.md', import.meta.url)),
  'utf8',
);

describe('docs/operations.md', () => {
  it.each(Object.entries(attentionReasons))('explains %s as the code does', (reason, meaning) => {
    expect(operations).toContain(`| \`${reason}\` | ${meaning} | `);
  });
});
