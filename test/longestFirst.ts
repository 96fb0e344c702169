import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * Files that take a minute and more, the longest first: begun last, each would be waited for with
 * a core that has nothing to do. Those that mostly wait are between those that only compute.
 */
const long: readonly string[] = [
  'integration/batch-plans',
  'integration/list-plans',
  'e2e/stack',
  'e2e/runbooks',
  'e2e/webhook-recovery',
  'e2e/worker-crash',
  'integration/interleavings-new',
  'e2e/docs',
  'e2e/database-outage',
  'integration/interleavings-known',
  'e2e/restore',
  'e2e/recovery',
  'planted/planted',
  'e2e/batch-crash',
];

const placeOf = ({ moduleId }: TestSpecification) => {
  const place = long.findIndex((name) => moduleId.endsWith(`${name}.test.ts`));
  return place === -1 ? long.length : place;
};

/** The order of a run: what is waited for longest, then project by project as Vitest has them. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const usual = await super.sort(files);
    const projects = [...new Set(usual.map(({ project }) => project.name))];
    // Files of a project that share a process do so only next to each other.
    const rank = (file: TestSpecification) =>
      placeOf(file) * projects.length + projects.indexOf(file.project.name);
    return usual.toSorted((a, b) => rank(a) - rank(b));
  }
}
