import { existsSync } from 'node:fs';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';
import { bundleWorkflowCode, DefaultLogger, Runtime } from '@temporalio/worker';
import { inject } from 'vitest';

let bundle: Promise<{ code: string }> | undefined;

/** The workflows' code, bundled once a run: the first test file leaves it for the others. */
export function workflowBundle(): Promise<{ code: string }> {
  bundle ??= sharedBundle(join(inject('workflowsFolder'), 'bundle.js'));
  return bundle;
}

async function sharedBundle(file: string): Promise<{ code: string }> {
  if (existsSync(file)) return { code: await readFile(file, 'utf8') };
  const { code } = await bundleWorkflows(
    fileURLToPath(new URL('../../src/workflows/index.ts', import.meta.url)),
  );
  // Two files may bundle at once; a third one never finds a half of it.
  await writeFile(`${file}.${process.pid}`, code);
  await rename(`${file}.${process.pid}`, file);
  return { code };
}

/** Bundles the workflows of an `index.ts`. */
export function bundleWorkflows(
  workflowsPath: string,
  workflowInterceptorModules: string[] = [],
): Promise<{ code: string }> {
  const logger = new DefaultLogger('WARN');
  return bundleWorkflowCode({ workflowsPath, workflowInterceptorModules, logger });
}

/** Where the workflows of a worker that traces put their spans; a replay makes none. */
export const spanSink = { exporter: { export: { fn: () => undefined } } };

/**
 * The native part's warnings of a start say what the test server lacks; those of running
 * workflows say why a test hangs.
 */
const nativeLog =
  'temporalio_sdk_core=WARN,temporalio_sdk_core::worker=ERROR,temporalio_sdk_core::worker::workflow=WARN';

/** What workers and workflows of this process have logged as errors. */
export const loggedErrors: string[] = [];

/** Keeps the SDK's chatter out of the tests; once a process, before anything else of the SDK. */
export function quietRuntime(): void {
  Runtime.install({
    logger: new DefaultLogger('ERROR', ({ message, meta }) => {
      loggedErrors.push(`${message} (${meta?.['workflowId']}): ${meta?.['error']}`);
      process.stderr.write(`${message} ${inspect(meta)}\n`);
    }),
    telemetryOptions: { logging: { filter: nativeLog } },
    shutdownSignals: [],
  });
}
