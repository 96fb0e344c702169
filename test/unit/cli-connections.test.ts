import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { withConnections } from '../../src/cli/connections.js';

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'corridor-connections-'));
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(directory, { recursive: true });
});

const stack = {
  database_url: 'postgres://127.0.0.1:1/corridor',
  temporal_address: '127.0.0.1:1',
  temporal_ui_url: 'http://127.0.0.1:8233',
  sandbox_bank_url: 'http://127.0.0.1:8090',
};

/** Nothing connects before the first query. */
const shown = () =>
  withConnections(directory, async ({ database, temporalUi, environment }) => {
    const [host] = database.options.host;
    return { host, temporalUi, bank: environment['SANDBOX_BANK_URL'] };
  });

const empty = ['DATABASE_URL', 'DATABASE_URL_FILE', 'TEMPORAL_UI_URL', 'TEMPORAL_NAMESPACE'];

it('a variable that is empty leaves the setting of the local stack', async () => {
  for (const name of [...empty, 'SANDBOX_BANK_URL']) vi.stubEnv(name, '');
  await writeFile(join(directory, 'stack.json'), JSON.stringify(stack));
  expect(await shown()).toEqual({
    host: '127.0.0.1',
    temporalUi: 'http://127.0.0.1:8233/namespaces/default',
    bank: 'http://127.0.0.1:8090',
  });
});

it('without a stack, an empty DATABASE_URL counts as not set', async () => {
  for (const name of empty) vi.stubEnv(name, '');
  await expect(shown()).rejects.toThrow(
    `No stack runs in ${directory}, and DATABASE_URL is not set`,
  );
});

it('with another database, nothing comes from the local stack', async () => {
  for (const name of [...empty, 'SANDBOX_BANK_URL']) vi.stubEnv(name, '');
  vi.stubEnv('DATABASE_URL', 'postgres://127.0.0.2:1/corridor');
  await writeFile(join(directory, 'stack.json'), JSON.stringify(stack));
  expect(await shown()).toEqual({ host: '127.0.0.2', temporalUi: undefined, bank: undefined });
  // The stack may run on one's own server.
  vi.stubEnv('DATABASE_URL', 'postgres://owner:secret@127.0.0.1:1/corridor');
  expect(await shown()).toMatchObject({ bank: 'http://127.0.0.1:8090' });
});

it('a secret file that is empty is refused, because it was made from a variable that was not set', async () => {
  const file = join(directory, 'database_url');
  await writeFile(file, '\n');
  for (const name of empty) vi.stubEnv(name, '');
  vi.stubEnv('DATABASE_URL_FILE', file);
  await expect(shown()).rejects.toThrow(
    `DATABASE_URL_FILE: expected a file that is not empty (${file})`,
  );
});
