import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { routes } from '../../src/api/app.js';
import { openapiDocument } from '../../src/api/openapi.js';

const clients = fileURLToPath(new URL('../../clients/', import.meta.url));
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const generated = [
  'typescript/src/generated/schema.ts',
  'python/src/corridor/models.py',
  'python/src/corridor/params.py',
];

/** The two digests that the generator writes at the top of a file, and the rest of the file. */
function partsOf(file: string) {
  const [first = '', document = '', types = '', ...rest] = readFileSync(
    clients + file,
    'utf8',
  ).split('\n');
  const digestIn = (line: string) => /sha256 ([0-9a-f]{64})$/.exec(line)?.[1];
  const version = /version (\S+): do not edit/.exec(first)?.[1];
  return { version, document: digestIn(document), types: digestIn(types), text: rest.join('\n') };
}

describe.each(generated)('clients/%s', (file) => {
  it('is generated from the current document; if not, run npm run generate:clients', () => {
    const newest = '2026-11-15';
    const document = sha256(JSON.stringify(openapiDocument(routes, newest)));
    expect(partsOf(file)).toMatchObject({ version: newest, document });
  });

  it('was not edited after it was generated', () => {
    const { types, text } = partsOf(file);
    expect(sha256(text)).toBe(types);
  });
});
