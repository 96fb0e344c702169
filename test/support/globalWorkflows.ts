import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';

declare module 'vitest' {
  export interface ProvidedContext {
    /** Where the first test file that needs the workflows' bundle leaves it for the others. */
    workflowsFolder: string;
  }
}

/** A folder for the bundle, which not every run needs and so none makes before it is wanted. */
export async function setup(project: TestProject) {
  const folder = await mkdtemp(join(tmpdir(), 'corridor-test-workflows-'));
  project.provide('workflowsFolder', folder);
  const clear = () => rm(folder, { recursive: true, force: true });
  // Somebody who watches has changed a source.
  project.onTestsRerun(async () => {
    await clear();
    await mkdir(folder);
  });
  return clear;
}
