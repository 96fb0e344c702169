// The worker of the second way's parent workflow; the children run in the product's worker.
import { fileURLToPath } from 'node:url';
import { DefaultLogger, NativeConnection, Runtime, Worker } from '@temporalio/worker';

Runtime.install({ logger: new DefaultLogger('WARN'), shutdownSignals: [] });
const connection = await NativeConnection.connect({ address: process.env.TEMPORAL_ADDRESS });
const worker = await Worker.create({
  connection,
  namespace: process.env.TEMPORAL_NAMESPACE,
  taskQueue: process.env.TASK_QUEUE,
  workflowsPath: fileURLToPath(new URL('./childWorkflow.mjs', import.meta.url)),
});
for (const end of ['disconnect', 'SIGTERM']) process.once(end, () => worker.shutdown());
const running = worker.run();
console.log(JSON.stringify({ ready: process.env.TASK_QUEUE }));
await running;
await connection.close();
process.exit(0);
