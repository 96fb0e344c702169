// The worker of bareWorkflows.mjs, with the product's own settings.
import { fileURLToPath } from 'node:url';
import { DefaultLogger, NativeConnection, Runtime, Worker } from '@temporalio/worker';

Runtime.install({ logger: new DefaultLogger('WARN'), shutdownSignals: [] });
const connection = await NativeConnection.connect({ address: process.env.TEMPORAL_ADDRESS });
const worker = await Worker.create({
  connection,
  namespace: process.env.TEMPORAL_NAMESPACE,
  taskQueue: process.env.TASK_QUEUE,
  workflowsPath: fileURLToPath(new URL('./bareWorkflows.mjs', import.meta.url)),
  maxCachedWorkflows: 2_000,
  maxConcurrentWorkflowTaskExecutions: 100,
});
for (const end of ['disconnect', 'SIGTERM']) process.once(end, () => worker.shutdown());
const running = worker.run();
console.log(JSON.stringify({ ready: process.env.TASK_QUEUE }));
await running;
await connection.close();
process.exit(0);
