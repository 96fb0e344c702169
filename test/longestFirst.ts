import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * Files that take about a minute or more, which come first: started last, one of them would keep the run
 * waiting with an idle core. Those that mostly wait are marked and spread, because three of them at the same time
 * would leave both cores idle. The longest of the unit tests are here for `npm run test:unit`.
 */
const long: readonly string[] = [
  'e2e/webhook-recovery', // waits
  'integration/batch-plans',
  'integration/list-plans',
  'e2e/docs',
  'e2e/restore', // waits
  'clients/clients',
  'integration/cancel', // waits
  'e2e/worker-crash', // waits
  'integration/interleavings-new',
  'e2e/database-outage',
  'integration/endpoint-health',
  'e2e/stack',
  'integration/idempotency',
  'integration/database-loss', // waits
  'e2e/runbooks', // waits
  'integration/batch-handover',
  'planted/planted',
  'e2e/monitoring',
  'integration/interleavings-known',
  'unit/arrival',
  'unit/lines',
  'unit/decode',
  'e2e/batch-crash',
  'integration/webhook-tarpit',
  'e2e/recovery',
  'e2e/batch-restart',
];

const placeOf = ({ moduleId }: TestSpecification) => {
  const place = long.findIndex((name) => moduleId.endsWith(`${name}.test.ts`));
  return place === -1 ? long.length : place;
};

/** Orders a run: the longest files first, then project by project in Vitest's usual order. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const usual = await super.sort(files);
    const projects = [...new Set(usual.map(({ project }) => project.name))];
    // Files of a project only share a process if they run consecutively.
    const rank = (file: TestSpecification) =>
      placeOf(file) * projects.length + projects.indexOf(file.project.name);
    return usual.toSorted((a, b) => rank(a) - rank(b));
  }
}
