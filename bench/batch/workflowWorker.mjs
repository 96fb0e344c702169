// A worker for the benchmark's own workflows. WORKFLOWS is their file, relative to this folder.
import { fileURLToPath } from 'node:url';
import { DefaultLogger, NativeConnection, Runtime, Worker } from '@temporalio/worker';

const { TASK_QUEUE, TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, WORKFLOWS } = process.env;

Runtime.install({ logger: new DefaultLogger('WARN'), shutdownSignals: [] });
const connection = await NativeConnection.connect({ address: TEMPORAL_ADDRESS });
const worker = await Worker.create({
  connection,
  namespace: TEMPORAL_NAMESPACE,
  taskQueue: TASK_QUEUE,
  workflowsPath: fileURLToPath(new URL(WORKFLOWS, import.meta.url)),
  // For the bare workflow `payoutShaped`.
  activities: { step: async () => undefined },
  // The product's settings; see src/worker/workers.ts.
  maxCachedWorkflows: 2_000,
  maxConcurrentWorkflowTaskExecutions: 100,
});
for (const end of ['disconnect', 'SIGTERM']) process.once(end, () => worker.shutdown());
const running = worker.run();
console.log(JSON.stringify({ ready: TASK_QUEUE }));
await running;
await connection.close();
process.exit(0);
