import { afterAll, beforeAll, expect, it } from 'vitest';
import { findPayoutById } from '../../src/db/payouts.js';
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

it('a workflow that is reset in the Temporal UI goes on from the row and sends nothing again', async () => {
  const id = await payer.send('simulate: delay 3s');
  await untilStatus(payer.client, id, 'sent');
  const { temporal } = system;
  const handle = temporal.workflow.getHandle(id);
  const { runId } = await handle.describe();
  const { events = [] } = await handle.fetchHistory();
  const first = events?.find((event) => event.workflowTaskCompletedEventAttributes);
  const reset = await temporal.workflowService.resetWorkflowExecution({
    namespace: 'default',
    workflowExecution: { workflowId: id, runId },
    reason: 'an operator presses Reset',
    requestId: `reset-${id}`,
    ...(first?.eventId ? { workflowTaskFinishEventId: first.eventId } : {}),
  });
  expect(reset.runId).not.toBe(runId);

  await untilStatus(payer.client, id, 'settled');
  await expect(temporal.workflow.getHandle(id, reset.runId).result()).resolves.toBe('settled');
  expect((await journalOf(system, id)).filter((type) => type === 'transfer')).toHaveLength(1);
  expect((await findPayoutById(system.database, id))?.attentionReason).toBeNull();
  expect(await payer.balance()).toMatchObject({ held: 0n });
  expect(await unbalancedCurrencies(system.database)).toEqual([]);
});
