import type { Client } from '@temporalio/client';
import type { BacklogSample } from '../metrics.js';
import { taskQueues } from '../workflows/messages.js';

/** What the server calls the kinds of tasks (temporal.api.enums.v1.TaskQueueType). */
const kinds = [
  ['workflow', 1],
  ['activity', 2],
] as const;

/** Temporal answers in milliseconds, and a scrape of the metrics waits for it. */
const limitMs = 1_000;

/** The tasks that wait for a worker: as good as none, unless there are too few workers. */
export async function readQueueBacklog(client: Client): Promise<readonly BacklogSample[]> {
  const { connection, options } = client;
  const of = async (name: string, kind: string, taskQueueType: 1 | 2) => {
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
  const asked = Object.values(taskQueues).flatMap((name) =>
    kinds.map(([kind, type]) => of(name, kind, type)),
  );
  return (await client.withDeadline(Date.now() + limitMs, () => Promise.all(asked))).flat();
}
