import {
  cpSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from '@temporalio/worker';
import { DeterminismViolationError } from '@temporalio/workflow';
import { beforeAll, describe, expect, it } from 'vitest';
import { personalDataIn } from '../assertions/history.js';
import {
  bundleWorkflows,
  quietRuntime,
  spanSink,
  workflowBundle,
} from '../servers/workflowBundle.js';

/**
 * Open workflows in production were started by older code and continue on today's code. Each file is
 * the history of a run that some release may have left behind; test/workflow/histories.test.ts
 * explains how the files are made. A change that fails here needs `patched()`, or a new history in
 * place of an old one that no release ever produced.
 */
const folder = fileURLToPath(new URL('histories', import.meta.url));
const files = readdirSync(folder);
const textOf = (file: string) => readFileSync(join(folder, file), 'utf8');

beforeAll(() => quietRuntime());

async function replay(file: string, bundle: Promise<{ code: string }>): Promise<void> {
  const history: unknown = JSON.parse(textOf(file));
  await Worker.runReplayHistory({ workflowBundle: await bundle, sinks: spanSink }, history, file);
}

describe('the current workflows', () => {
  it.each([
    'batch-canceled',
    'batch-chunk-handed-over',
    'batch-chunk-settled-by-callback',
    'batch-chunk-settled-by-poll',
    'batch-refused',
    'batch-settled',
    'payout-parked-then-settled',
    'payout-refused',
    'payout-restarted-with-events',
    'payout-settled-by-callback',
    'payout-settled-by-poll',
    'payout-settled-while-polled',
    'payout-settled-while-submitted',
  ])('have a stored history of %s', (way) => {
    expect(files.filter((file) => file.startsWith(`${way}.`))).not.toEqual([]);
  });

  it.each(files)('replay %s', async (file) => {
    await replay(file, workflowBundle());
  });
});

describe('the workflows of workers with tracing', () => {
  let traced: Promise<{ code: string }> | undefined;

  it.each(files)('replay %s, which began without tracing', async (file) => {
    const pathOf = (name: string) =>
      fileURLToPath(new URL(`../../src/workflows/${name}.ts`, import.meta.url));
    traced ??= bundleWorkflows(pathOf('index'), [pathOf('traced')]);
    await replay(file, traced);
  });
});

describe('a replay', () => {
  it.each([
    [
      'an activity that moved before its predecessor',
      'payout-settled-by-callback.v1.json',
      'payout.ts',
      (text: string) => text.replace('await submit(run);', 'await applyRailEvents(run);\n$&'),
    ],
    [
      'a poll that no longer waits for the callback',
      'payout-settled-by-poll.v1.json',
      'payout.ts',
      (text: string) => text.replace(/if \(await condition\(.*patienceMs.*/, ''),
    ],
    [
      'a batch that checks whether it is empty before it decides',
      'batch-settled.v1.json',
      'batch.ts',
      (text: string) =>
        text.replace('for (let', 'await batchLedger.closeEmptyBatch({ batchId });\n$&'),
    ],
    [
      'a chunk that does not poll after its pause',
      'batch-chunk-settled-by-poll.v1.json',
      'batchChunk.ts',
      (text: string) => text.replace('if (isTimeUp) await poll(chunk);', ''),
    ],
  ])('refuses %s', async (_, file, workflow, change) => {
    await expect(replay(file, bundleChanged(workflow, change))).rejects.toThrow(
      DeterminismViolationError,
    );
  });
});

describe('a history', () => {
  it.each(files)('contains no personal data: %s', (file) => {
    expect(personalDataIn(textOf(file))).toEqual([]);
  });

  it('with personal data in a payload is detected', () => {
    const data = Buffer.from('{"to":"DE89370400440532013000"}').toString('base64');
    const text = JSON.stringify({ events: [{ input: { payloads: [{ data }] } }] });
    expect(personalDataIn(text)).toEqual(['DE89370400440532013000']);
  });
});

/** Bundles a copy of the workflows in which one file is changed. */
async function bundleChanged(
  workflow: string,
  change: (text: string) => string,
): Promise<{ code: string }> {
  const source = fileURLToPath(new URL('../../src', import.meta.url));
  const copy = mkdtempSync(join(tmpdir(), 'corridor-replay-'));
  try {
    for (const part of ['workflows', 'domain']) {
      cpSync(join(source, part), join(copy, 'src', part), { recursive: true });
    }
    symlinkSync(join(source, '../node_modules'), join(copy, 'node_modules'));
    const file = join(copy, 'src/workflows', workflow);
    const text = readFileSync(file, 'utf8');
    const changed = change(text);
    if (changed === text) throw new Error('The change did not match the source.');
    writeFileSync(file, changed);
    return await bundleWorkflows(join(copy, 'src/workflows/index.ts'));
  } finally {
    rmSync(copy, { recursive: true });
  }
}
