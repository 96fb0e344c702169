import { type Client, ScheduleAlreadyRunning, ScheduleOverlapPolicy } from '@temporalio/client';
import { taskQueues } from '../workflows/messages.js';

/**
 * The workflows that run on a schedule, and how often. A late run is skipped, not caught up. A run
 * that an outage holds up has no time limit, but continues when the outage is over.
 */
const schedules = [
  // With the times of db/wakeTimes.ts, payouts held up by an outage move ten seconds after its end.
  { workflow: 'sweep', everyMs: 5_000, does: 'Wakes what is overdue' },
  { workflow: 'retention', everyMs: 60 * 60_000, does: 'Deletes what is kept for a time only' },
  { workflow: 'statement', everyMs: 24 * 60 * 60_000, does: "Reads the bank's closed statements" },
  // A manipulated balance can be spent for an hour at most, and reading all postings takes seconds.
  { workflow: 'balances', everyMs: 60 * 60_000, does: 'Compares balances with their postings' },
  // Rates of the embedded table are valid for a day; hourly runs leave room for a source that is down.
  {
    workflow: 'refreshRates',
    everyMs: 60 * 60_000,
    does: 'Reads the rates of the provider in use',
  },
] as const;

export const scheduleIds = schedules.map(({ workflow }) => workflow);

const catchupWindowMs = 60_000;

/**
 * Time after midnight UTC, when the bank's day ends, at which statements are read. Earlier, the bank's last
 * payments may be missing in the ledger, which polls the bank hourly, and would count as breaks.
 */
const statementOffsetMs = 2 * 60 * 60_000;

/** Creates the schedules, or updates existing ones to what this build defines. */
export async function upsertSchedules(client: Client): Promise<void> {
  for (const { workflow, everyMs, does } of schedules) {
    const offset = workflow === 'statement' ? statementOffsetMs : 0;
    const description = {
      spec: { intervals: [{ every: everyMs, offset }] },
      policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: catchupWindowMs },
      action: {
        type: 'startWorkflow' as const,
        workflowType: workflow,
        workflowId: workflow,
        staticSummary: does,
        taskQueue: taskQueues.payouts,
        args: [],
        // A worker killed during a task holds up the next runs for no longer than this.
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
