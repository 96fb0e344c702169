import { fileURLToPath } from 'node:url';
import { bundleWorkflowCode, DefaultLogger, Runtime } from '@temporalio/worker';

let bundle: Promise<{ code: string }> | undefined;

/** The workflows' code, bundled once a test file. */
export function workflowBundle(): Promise<{ code: string }> {
  bundle ??= bundleWorkflows(fileURLToPath(new URL('../../src/workflows/index.ts', import.meta.url)));
  return bundle;
}

/** Bundles the workflows of an `index.ts`. */
export function bundleWorkflows(workflowsPath: string): Promise<{ code: string }> {
  return bundleWorkflowCode({ workflowsPath, logger: new DefaultLogger('WARN') });
}

/** Keeps the SDK's chatter out of the tests; once a process, before anything else of the SDK. */
export function quietRuntime(): void {
  Runtime.install({ logger: new DefaultLogger('ERROR'), shutdownSignals: [] });
}
