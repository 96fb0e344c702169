import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Activities } from '../../src/activities/index.js';
import { taskQueues } from '../../src/workflows/messages.js';
import { startTimeSkipping, type TimeSkipping } from '../servers/timeSkipping.js';

const minuteMs = 60_000;

let server: TimeSkipping;

beforeAll(async () => {
  server = await startTimeSkipping();
});
afterAll(() => server.stop());

/** An activity that fails until this much time has passed, and the times at which it was called. */
function failingFor<T>(outageMs: number, answer: T) {
  const timesMs: number[] = [];
  const run = async (): Promise<T> => {
    const nowMs = await server.now();
    timesMs.push(nowMs);
    if (nowMs - (timesMs[0] ?? 0) < outageMs) throw new Error('The database is unreachable.');
    return answer;
  };
  const pausesMs = () => timesMs.slice(1).map((timeMs, index) => timeMs - (timesMs[index] ?? 0));
  return { run, pausesMs };
}

describe('a scheduled workflow', () => {
  it.each([
    { name: 'sweep', activity: 'sweep', longestPauseMs: 10_000 },
    { name: 'retention', activity: 'purge', longestPauseMs: minuteMs },
    { name: 'statement', activity: 'readStatements', longestPauseMs: minuteMs },
    { name: 'refreshRates', activity: 'refreshRates', longestPauseMs: minuteMs },
    { name: 'balances', activity: 'compareBalances', longestPauseMs: minuteMs },
  ] as const)('$name waits out an outage', async ({ name, activity, longestPauseMs }) => {
    const { run, pausesMs } = failingFor(20 * minuteMs, 7);
    const activities: Partial<Activities> = { [activity]: run };
    await server.withWorkers(activities, async () => {
      const options = { workflowId: name, taskQueue: taskQueues.payouts };
      const handle = await server.client.workflow.start(name, options);
      await handle.result();
      expect((await handle.describe()).status.name).toBe('COMPLETED');
    });
    expect(Math.max(...pausesMs())).toBeLessThan(longestPauseMs + 5_000);
    expect(pausesMs().length).toBeGreaterThan(10);
  });
});
