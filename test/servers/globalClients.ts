import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { oncePerRun, places } from './oncePerRun.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** Where the first test file that needs an installed client puts it for the others. */
    clientsFolder: string;
  }
}

/** Creates a folder for the installed clients. They are installed on demand: see installedOnce.ts. */
export async function setup(project: TestProject) {
  const { value: folder, end } = await oncePerRun(places.clients, async () => {
    const made = await mkdtemp(join(tmpdir(), 'corridor-test-clients-'));
    return { value: made, end: () => rm(made, { recursive: true, force: true }) };
  });
  project.provide('clientsFolder', folder);
  return end;
}
