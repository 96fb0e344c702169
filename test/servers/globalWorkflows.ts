import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { oncePerRun, places } from './oncePerRun.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** Where the first test file that needs the workflow bundle puts it for the others. */
    workflowsFolder: string;
  }
}

/** Creates a folder for the workflow bundle. The bundle is built on demand, as not every run needs it. */
export async function setup(project: TestProject) {
  const { value: folder, end } = await oncePerRun(places.workflows, async () => {
    const made = await mkdtemp(join(tmpdir(), 'corridor-test-workflows-'));
    return { value: made, end: () => rm(made, { recursive: true, force: true }) };
  });
  project.provide('workflowsFolder', folder);
  // In watch mode a source file has changed, so the bundle is out of date.
  project.onTestsRerun(async () => {
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
  });
  return end;
}
