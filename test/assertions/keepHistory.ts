import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import { Worker } from '@temporalio/worker';
import { expect } from 'vitest';
import type { TimeSkipping } from '../servers/timeSkipping.js';
import { workflowBundle } from '../servers/workflowBundle.js';
import { personalDataIn, withoutMachine } from './history.js';

/**
 * A run with `RECORD_HISTORIES=v2` keeps the histories that are checked as
 * `test/replay/histories/….v2.json`, next to those that are there: production still has
 * workflows with the histories of older code.
 */
const version = process.env['RECORD_HISTORIES'];

/** Checks the history of a workflow's latest run, and stores it when this is a recording. */
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
  // A history that is there is never replaced: it is what some production has.
  await writeFile(fileURLToPath(file), text, { flag: 'wx' });
}
