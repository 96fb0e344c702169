import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { errorsPage, guidePage } from '../../src/api/referencePages.js';

const errors = readFileSync(new URL('../../src/api/pages/errors.md', import.meta.url), 'utf8');
const section = /^## `quote_used`\n[\s\S]*?(?=^## )/m;

describe('the page of errors', () => {
  it('explains every code, with what to do about it', () => {
    expect(errorsPage()).toContain(
      '<section id="quote_used">\n<h2><code>quote_used</code></h2>\n<p><strong>422</strong> ',
    );
  });

  it.each([
    ['a code is missing', (text: string) => text.replace(section, '')],
    ['the last code is missing', (text: string) => text.slice(0, text.lastIndexOf('## '))],
    ['a code is explained twice', (text: string) => text + section.exec(text)?.[0]],
    ['it explains no code', (text: string) => `${text}\n## \`other\`\n\nWhat to do: Nothing.\n`],
    ['it does not say what to do', (text: string) => text.replace('What to do:', 'Else:')],
  ])('is not made where %s', (_, change) => {
    expect(change(errors)).not.toBe(errors);
    expect(() => errorsPage(change(errors))).toThrow('errors.md');
  });
});

describe('the guide', () => {
  it('has its code as it is written, and its limits from the code', () => {
    expect(guidePage()).toContain('\n  return isRecent &amp;&amp; headers[');
    expect(guidePage()).toContain('up to 10,000 payouts in a body of up to 8 MiB');
    expect(guidePage()).not.toMatch(/\{\{|```/);
  });
});
