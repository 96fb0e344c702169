import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { newId } from '../../src/db/id.js';
import { wakeEndpoint } from '../../src/temporal/workflowCalls.js';
import { backoffAfter } from '../../src/webhooks/retrySchedule.js';
import { deliverSignal } from '../../src/workflows/messages.js';
import { startTimeSkipping, type TimeSkipping } from '../servers/timeSkipping.js';

const secondMs = 1_000;
const hourMs = 60 * 60 * secondMs;
const dayMs = 24 * hourMs;

type DeliverDue = () => Promise<{ readonly nextInMs: number | null }>;

let server: TimeSkipping;

beforeAll(async () => {
  server = await startTimeSkipping();
});
afterAll(() => server.stop());

/** Wakes an endpoint as the service does, and runs the test on its workflow. */
async function drive(deliverDue: DeliverDue, test: (endpointId: string) => Promise<void>) {
  const endpointId = newId('webhookEndpoint');
  await server.withWorkers({ deliverDue }, async () => {
    await wakeEndpoint(server.client, endpointId);
    await test(endpointId);
  });
}

function handleOf(endpointId: string) {
  return server.client.workflow.getHandle(`webhook/${endpointId}`);
}

describe('the delivery workflow of an endpoint', () => {
  it('attempts for three days, by the retry schedule, and ends when nothing is pending', async () => {
    const timesMs: number[] = [];
    const pausesMs: number[] = [];
    const deliverDue: DeliverDue = async () => {
      timesMs.push(await server.now());
      const nextInMs = backoffAfter(timesMs.length, 0.5) ?? null;
      if (nextInMs !== null) pausesMs.push(nextInMs);
      return { nextInMs };
    };
    await drive(deliverDue, async (endpointId) => {
      await handleOf(endpointId).result();
    });
    const sleptMs = timesMs.slice(1).map((timeMs, index) => timeMs - (timesMs[index] ?? 0));
    expectPauses(sleptMs, pausesMs);
    expect(toSeconds(pausesMs[0] ?? 0)).toBe(5);
    const ladderMs = (timesMs.at(-1) ?? 0) - (timesMs[0] ?? 0);
    expect(ladderMs / dayMs).toBeGreaterThan(2.9);
  });

  it('attempts due deliveries at a signal and sleeps again until the next attempt', async () => {
    const timesMs: number[] = [];
    const deliverDue: DeliverDue = async () => {
      const nowMs = await server.now();
      timesMs.push(nowMs);
      // One attempt is due ten hours after the first call.
      const nextInMs = (timesMs[0] ?? 0) + 10 * hourMs - nowMs;
      return { nextInMs: nextInMs > 0 ? nextInMs : null };
    };
    await drive(deliverDue, async (endpointId) => {
      await server.sleep(2 * hourMs);
      await handleOf(endpointId).signal(deliverSignal);
      await handleOf(endpointId).result();
    });
    expect(timesMs.map((timeMs) => Math.round((timeMs - (timesMs[0] ?? 0)) / hourMs))).toEqual([
      0, 2, 10,
    ]);
  });

  it('waits out an outage, and retries every ten seconds', async () => {
    const timesMs: number[] = [];
    const deliverDue: DeliverDue = async () => {
      timesMs.push(await server.now());
      if (timesMs.length < 20) throw new Error('The database is unreachable.');
      return { nextInMs: null };
    };
    await drive(deliverDue, async (endpointId) => {
      await handleOf(endpointId).result();
    });
    const pausesMs = timesMs.slice(1).map((timeMs, index) => timeMs - (timesMs[index] ?? 0));
    const tenSeconds = Array.from({ length: 15 }, () => 10_000);
    expectPauses(pausesMs, [1_000, 2_000, 4_000, 8_000, ...tenSeconds]);
  });

  it('checks again when a signal arrives during the last attempt', async () => {
    let checks = 0;
    const endpointId = newId('webhookEndpoint');
    const deliverDue: DeliverDue = async () => {
      checks += 1;
      if (checks === 1) await handleOf(endpointId).signal(deliverSignal);
      return { nextInMs: null };
    };
    await server.withWorkers({ deliverDue }, async () => {
      await wakeEndpoint(server.client, endpointId);
      await handleOf(endpointId).result();
    });
    expect(checks).toBe(2);
  });
});

/** Verifies the pauses. The clock skips each one; only the delay of a busy machine is real time. */
function expectPauses(sleptMs: readonly number[], pausesMs: readonly number[]): void {
  expect(sleptMs.length).toBe(pausesMs.length);
  for (const [index, pauseMs] of pausesMs.entries()) {
    const lateMs = (sleptMs[index] ?? 0) - pauseMs;
    expect(lateMs).toBeGreaterThanOrEqual(-500);
    expect(lateMs).toBeLessThan(5_000);
  }
}

function toSeconds(ms: number): number {
  return Math.round(ms / secondMs);
}
