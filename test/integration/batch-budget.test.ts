import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chunkCountOf } from '../../src/domain/batch.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { textOf } from '../fixtures/client.js';
import { startSystem, type TestSystem } from '../servers/system.js';

const count = 2_000;

describe('a batch of 2,000', () => {
  let system: TestSystem;
  let receiver: Receiver;

  beforeAll(async () => {
    system = await startSystem();
    receiver = await startReceiver();
  });
  afterAll(async () => {
    await receiver.close();
    await system.stop();
  });

  /** The state transitions of a workflow's latest run, once it has ended. */
  async function transitionsOf(workflowId: string): Promise<number> {
    const handle = system.temporal.workflow.getHandle(workflowId);
    await handle.result();
    const { raw } = await handle.describe();
    return Number(raw.workflowExecutionInfo?.stateTransitionCount);
  }

  it('costs less than a tenth of a state transition a payout', async () => {
    const { client } = system;
    await client('POST /v1/webhook_endpoints', {
      json: { url: receiver.url, events: ['batch.completed'] },
    });
    const stored = await client('POST /v1/beneficiaries', {
      form: {
        type: 'business',
        name: 'Analytical Engines',
        country: 'DE',
        currency: 'EUR',
        iban: 'DE89370400440532013000',
      },
    });
    const beneficiary = textOf(stored, 'id');
    const item = { source_currency: 'USD', amount: '400', beneficiary };
    const payouts = Array.from({ length: count }, () => item);
    const answer = await client('POST /v1/batches', { json: { payouts } });
    const id = textOf(answer, 'id');
    const webhook = await receiver.next(({ body }) => body.includes(id));
    expect(JSON.parse(webhook.body)).toMatchObject({ data: { counts: { settled: count } } });

    const chunks = Array.from({ length: chunkCountOf(count) }, (_, number) => `${id}/${number}`);
    const costs = await Promise.all([id, ...chunks].map(transitionsOf));
    const cost = costs.reduce((sum, transitions) => sum + transitions, 0);
    // A workflow without a count would look like a saving.
    expect(Math.min(...costs)).toBeGreaterThan(0);
    expect(cost / count).toBeLessThan(0.1);
  });
});
