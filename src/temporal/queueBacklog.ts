import type { Client } from '@temporalio/client';
import type { BacklogSample } from '../metrics.js';
import { taskQueues } from '../workflows/messages.js';

/** The kinds of tasks with the server's codes for them (temporal.api.enums.v1.TaskQueueType). */
const kinds = { workflow: 1, activity: 2 } as const;

/** Timeout of reading the backlog. Temporal answers in milliseconds, and a metrics scrape waits for it. */
const limitMs = 1_000;

/** Reads how many tasks wait for a worker: almost none, unless there are too few workers. */
export async function readQueueBacklog(client: Client): Promise<readonly BacklogSample[]> {
  const { connection, options } = client;
  const backlogOf = async (name: string, kind: string, taskQueueType: 1 | 2) => {
    const { stats } = await connection.workflowService.describeTaskQueue({
      namespace: options.namespace,
      taskQueue: { name },
      taskQueueType,
      reportStats: true,
    });
    const labels = { task_queue: name, kind };
    const count = Number(stats?.approximateBacklogCount ?? 0);
    const age = Number(stats?.approximateBacklogAge?.seconds ?? 0);
    return [
      { metric: 'task_queue_backlog', labels, value: count },
      { metric: 'task_queue_backlog_oldest_seconds', labels, value: age },
    ] as const;
  };
  const requests = Object.values(taskQueues).flatMap((name) =>
    Object.entries(kinds).map(([kind, type]) => backlogOf(name, kind, type)),
  );
  return (await client.withDeadline(Date.now() + limitMs, () => Promise.all(requests))).flat();
}
