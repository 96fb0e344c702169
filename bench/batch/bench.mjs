// Starts a local stack with a webhook sink for one run of a benchmark.
import { resolve } from 'node:path';
import { interruption } from '../../dist/sandbox/interruption.js';
import { startStack } from '../../dist/sandbox/localStack.js';
import { connectDatabase } from '../../dist/src/db/client.js';
import { connectTemporal } from '../../dist/src/temporal/client.js';
import { startScript } from './processes.mjs';

const anyPort = { api: 0, metrics: 0, temporal: 0, temporalUi: 0, postgres: 0, bank: 0 };

/**
 * Starts everything, runs `work` and stops everything, also on Ctrl-C or if a part exits.
 *
 * @param {string} data a folder that is emptied first
 */
export async function withBench(data, work) {
  const interrupted = interruption().then(() => {
    throw new Error('Interrupted.');
  });
  const directory = resolve(data);
  const stack = await startStack({
    ...{ directory, ports: anyPort, reset: true },
    onProgress: (line) => console.error(`  ${line}`),
  });
  const broken = stack.broken.then(({ part, exit }) => {
    throw new Error([`${part} has exited. Its last output:`, ...exit.lastWords].join('\n  '));
  });
  const database = connectDatabase({
    ...{ url: stack.description.database_url, poolSize: 2, applicationName: 'bench' },
  });
  const temporal = connectTemporal({
    TEMPORAL_ADDRESS: stack.description.temporal_address,
    TEMPORAL_NAMESPACE: process.env.TEMPORAL_NAMESPACE ?? 'default',
  });
  let sink;
  try {
    sink = await startScript({ name: 'sink', script: './sink.mjs', directory });
    const bench = {
      ...{ stack, directory, database, temporal },
      sinkUrl: sink.announced,
      sinkPid: sink.pid,
      journal: resolve(directory, 'bank-journal.jsonl'),
    };
    return await Promise.race([work(bench), broken, interrupted]);
  } finally {
    // From here the parts exit because we stop them, which is not a failure.
    broken.catch(() => undefined);
    interrupted.catch(() => undefined);
    await sink?.stop();
    await Promise.all([database.end({ timeout: 5 }), temporal.connection.close()]);
    await stack.stop();
  }
}
