import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ScriptedPayout } from '../support/scriptedPayout.js';
import { startTimeSkipping, type TimeSkipping } from '../support/timeSkipping.js';
import { payout } from '../../src/workflows/payout.js';
import { railUpdateSignal, taskQueues } from '../../src/workflows/messages.js';
import { newId } from '../../src/db/id.js';

describe('x', () => {
  let server: TimeSkipping;
  beforeAll(async () => {
    const t = performance.now();
    server = await startTimeSkipping();
    console.log('start', performance.now() - t);
  });
  afterAll(() => server.stop());
  for (let i = 0; i < 3; i++)
  it('settles'+i, async () => {
    const s = new ScriptedPayout(newId('payout'));
    const t = performance.now();
    await server.withWorkers(s.activities, async () => {
      console.log('workers', performance.now() - t);
      const h = await server.client.workflow.start('payout', { workflowId: s.id, taskQueue: 'payouts', args: [{payoutId: s.id}] });
      await server.sleep(30_000);
      console.log('slept', performance.now() - t);
      s.inbox.push('settled');
      await h.signal(railUpdateSignal);
      console.log(await h.result());
      console.log('result', performance.now() - t, s.calls);
    });
      console.log('end', performance.now() - t);
  });
});
