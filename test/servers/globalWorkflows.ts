import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { oncePerRun, places } from './oncePerRun.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** Where the first test file that needs the workflows' bundle leaves it for the others. */
    workflowsFolder: string;
  }
}

/** A folder for the bundle, which not every run needs and so none makes before it is wanted. */
export async function setup(project: TestProject) {
  const { value: folder, end } = await oncePerRun(places.workflows, async () => {
    const made = await mkdtemp(join(tmpdir(), 'corridor-test-workflows-'));
    return { value: made, end: () => rm(made, { recursive: true, force: true }) };
  });
  project.provide('workflowsFolder', folder);
  // Somebody who watches has changed a source.
  project.onTestsRerun(async () => {
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder, { recursive: true });
  });
  return end;
}
