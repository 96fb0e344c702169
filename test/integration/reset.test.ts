import type { WorkflowHandle } from '@temporalio/client';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { findPayoutById } from '../../src/db/payouts.js';
import { eventually } from '../assertions/eventually.js';
import { untilStatus } from '../fixtures/client.js';
import { journalOf, openPayer, type Payer } from '../fixtures/payer.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;
let payer: Payer;

beforeAll(async () => {
  system = await startSystem();
  payer = await openPayer(system);
});
afterAll(() => system.stop());

/** Waits for it: the task that sends a payout completes after the row has the status `sent`. */
async function firstCompletedTask(handle: WorkflowHandle) {
  return eventually('the first workflow task has completed', 20_000, async () => {
    const { events } = await handle.fetchHistory();
    const first = events?.find((event) => event.workflowTaskCompletedEventAttributes);
    return first?.eventId ?? undefined;
  });
}

it('a workflow that is reset in the Temporal UI goes on from the row and sends nothing again', async () => {
  const id = await payer.send('simulate: delay 3s');
  await untilStatus(payer.client, id, 'sent');
  const { temporal } = system;
  const handle = temporal.workflow.getHandle(id);
  const { runId } = await handle.describe();
  const first = await firstCompletedTask(handle);
  const reset = await temporal.workflowService.resetWorkflowExecution({
    namespace: 'default',
    workflowExecution: { workflowId: id, runId },
    reason: 'an operator presses Reset',
    requestId: `reset-${id}`,
    workflowTaskFinishEventId: first,
  });
  expect(reset.runId).not.toBe(runId);

  await untilStatus(payer.client, id, 'settled');
  await expect(temporal.workflow.getHandle(id, reset.runId).result()).resolves.toBe('settled');
  expect((await journalOf(system, id)).filter((type) => type === 'transfer')).toHaveLength(1);
  expect((await findPayoutById(system.database, id))?.attentionReason).toBeNull();
  expect(await payer.balance()).toMatchObject({ held: 0n });
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
});
