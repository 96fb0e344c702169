import { type Client, ScheduleAlreadyRunning, ScheduleOverlapPolicy } from '@temporalio/client';
import { taskQueues } from '../workflows/messages.js';

/**
 * What runs on a schedule, and how often. A run that is late is skipped, not caught up; one that
 * an outage holds up has no limit, but continues when it is over.
 */
const schedules = [
  // With the times of db/wakeTimes.ts, what an outage has held up moves ten seconds after its end.
  { workflow: 'sweep', everyMs: 5_000, does: 'Wakes what is overdue' },
  { workflow: 'retention', everyMs: 60 * 60_000, does: 'Deletes what is kept for a time only' },
  { workflow: 'statement', everyMs: 24 * 60 * 60_000, does: "Reads the bank's closed statements" },
  // A balance that was edited pays for an hour at most, and reading all postings takes seconds.
  { workflow: 'balances', everyMs: 60 * 60_000, does: 'Compares balances with their postings' },
  // Rates of the embedded table hold for a day; an hour leaves room for a source that is down.
  {
    workflow: 'refreshRates',
    everyMs: 60 * 60_000,
    does: 'Reads the rates of the provider in use',
  },
] as const;

export const scheduleIds = schedules.map(({ workflow }) => workflow);

const catchupWindowMs = 60_000;

/** Makes the schedules, or brings those that exist to what this build says. */
export async function upsertSchedules(client: Client): Promise<void> {
  for (const { workflow, everyMs, does } of schedules) {
    const description = {
      spec: { intervals: [{ every: everyMs }] },
      policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: catchupWindowMs },
      action: {
        type: 'startWorkflow' as const,
        workflowType: workflow,
        workflowId: workflow,
        staticSummary: does,
        taskQueue: taskQueues.payouts,
        args: [],
        // A worker that was killed with a task holds up the next runs no longer.
        workflowTaskTimeout: 5_000,
      },
    };
    try {
      await client.schedule.create({ scheduleId: workflow, ...description });
    } catch (error) {
      if (!(error instanceof ScheduleAlreadyRunning)) throw error;
      await client.schedule
        .getHandle(workflow)
        .update((previous) => ({ ...previous, ...description }));
    }
  }
}
