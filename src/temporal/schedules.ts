import { type Client, ScheduleAlreadyRunning, ScheduleOverlapPolicy } from '@temporalio/client';
import { taskQueues } from '../workflows/messages.js';

const hourMs = 60 * 60_000;

/** A run starts `offsetMs` after its interval does. Intervals are counted from midnight UTC. */
type Schedule = Readonly<{ workflow: string; everyMs: number; offsetMs?: number; does: string }>;

/**
 * The workflows that run on a schedule, and how often. After an outage of Temporal, a run that was missed
 * less than one interval ago is made up. A run that an outage holds up has no time limit, but continues
 * when the outage is over.
 */
const schedules: readonly Schedule[] = [
  // With the times of db/wakeTimes.ts, payouts held up by an outage move ten seconds after its end.
  { workflow: 'sweep', everyMs: 5_000, does: 'Wakes what is overdue' },
  { workflow: 'retention', everyMs: hourMs, does: 'Deletes what is kept for a time only' },
  // Two hours after the bank's day ends at midnight UTC. Earlier, the bank's last payments may be missing in
  // the ledger, which polls the bank hourly, and would count as breaks.
  {
    workflow: 'statement',
    everyMs: 24 * hourMs,
    offsetMs: 2 * hourMs,
    does: "Reads the bank's closed statements",
  },
  // A manipulated balance can be spent for an hour at most, and reading all postings takes seconds.
  { workflow: 'balances', everyMs: hourMs, does: 'Compares balances with their postings' },
  // Rates of the embedded table are valid for a day; hourly runs leave room for a source that is down.
  { workflow: 'refreshRates', everyMs: hourMs, does: 'Reads the rates of the provider in use' },
];

export const scheduleIds = schedules.map(({ workflow }) => workflow);

/** Creates the schedules, or updates existing ones to what this build defines. */
export async function upsertSchedules(client: Client): Promise<void> {
  for (const { workflow, everyMs, offsetMs = 0, does } of schedules) {
    const description = {
      spec: { intervals: [{ every: everyMs, offset: offsetMs }] },
      // The server allows no window as short as the interval of the sweep.
      policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: Math.max(everyMs, 60_000) },
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
