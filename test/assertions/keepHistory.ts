import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { Worker } from '@temporalio/worker';
import { expect } from 'vitest';
import type { TimeSkipping } from '../servers/timeSkipping.js';
import { workflowBundle } from '../servers/workflowBundle.js';
import { personalDataIn, withoutMachine } from './history.js';

/**
 * When set, as in `RECORD_HISTORIES=v2`, the checked histories are stored as
 * `test/replay/histories/….v2.json`, next to the existing ones. Those stay, because production still
 * has workflows with histories of older code.
 */
const version = process.env['RECORD_HISTORIES'];

/** Replays the history of a workflow's latest run, and stores it if this is a recording. */
export async function keepHistory(
  { client }: TimeSkipping,
  name: string,
  workflowId: string,
): Promise<void> {
  const history = await client.workflow.getHandle(workflowId).fetchHistory();
  await Worker.runReplayHistory({ workflowBundle: await workflowBundle() }, history, workflowId);
  const text = withoutMachine(historyToJSON(history));
  expect(personalDataIn(text)).toEqual([]);
  if (version === undefined) return;
  const file = new URL(`../replay/histories/${name}.${version}.json`, import.meta.url);
  // Fails if the file exists: a stored history is never replaced, as some production may have it.
  await writeFile(fileURLToPath(file), text, { flag: 'wx' });
}
