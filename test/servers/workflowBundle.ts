import { existsSync } from 'node:fs';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';
import v8 from 'node:v8';
import { bundleWorkflowCode, DefaultLogger, Runtime } from '@temporalio/worker';
import { inject } from 'vitest';

let bundle: Promise<{ code: string }> | undefined;

/** The workflows' code, bundled once per run: the first test file stores it for the others. */
export function workflowBundle(): Promise<{ code: string }> {
  bundle ??= sharedBundle(join(inject('workflowsFolder'), 'bundle.js'));
  return bundle;
}

async function sharedBundle(file: string): Promise<{ code: string }> {
  if (existsSync(file)) return { code: await readFile(file, 'utf8') };
  const { code } = await bundleWorkflows(
    fileURLToPath(new URL('../../src/workflows/index.ts', import.meta.url)),
  );
  // Two files may bundle concurrently; the rename ensures that no other file reads a partial bundle.
  await writeFile(`${file}.${process.pid}`, code);
  await rename(`${file}.${process.pid}`, file);
  return { code };
}

/**
 * The workflows for a worker of this process. `debugMode` runs them in this thread: otherwise every worker
 * starts a thread, which takes longer than many tests. The workers of `e2e` have their threads.
 */
export const workflowsInThisThread = async () =>
  ({
    workflowBundle: await workflowBundle(),
    debugMode: true,
    // An option that the SDK (1.24) reads but does not declare. Without it, debugMode has no limit, and a
    // workflow that loops would block this thread for ever.
    isolateExecutionTimeout: '5s',
  }) as const;

/** Bundles the workflows that an `index.ts` exports. */
export function bundleWorkflows(
  workflowsPath: string,
  workflowInterceptorModules: string[] = [],
): Promise<{ code: string }> {
  const logger = new DefaultLogger('WARN');
  return bundleWorkflowCode({ workflowsPath, workflowInterceptorModules, logger });
}

/** The sink that traced workflows write their spans to. Replays discard spans. */
export const spanSink = { exporter: { export: { fn: () => undefined } } };

/**
 * At startup the native part only warns about features that the test server lacks, so those warnings
 * are hidden. Warnings of running workflows are kept: they explain why a test hangs.
 */
const nativeLog =
  'temporalio_sdk_core=WARN,temporalio_sdk_core::worker=ERROR,temporalio_sdk_core::worker::workflow=WARN';

/** Errors that workers and workflows of this process have logged. */
export const loggedErrors: string[] = [];

/**
 * Silences the SDK's logs in tests, and keeps it from recording a call stack for every promise of a
 * workflow, which production does not record either (withoutCallStacks.ts). Call it once per process, before any other use of
 * the SDK.
 */
export function quietRuntime(): void {
  v8.promiseHooks.createHook = () => () => undefined;
  Runtime.install({
    logger: new DefaultLogger('ERROR', ({ message, meta }) => {
      loggedErrors.push(`${message} (${meta?.['workflowId']}): ${meta?.['error']}`);
      process.stderr.write(`${message} ${inspect(meta)}\n`);
    }),
    telemetryOptions: { logging: { filter: nativeLog } },
    shutdownSignals: [],
  });
}
