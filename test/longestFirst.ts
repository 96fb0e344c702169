import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * Files that take about a minute or more, longest first: started last, one of them would keep the run
 * waiting with an idle core. Files that mostly wait alternate with files that mostly compute. The longest of
 * the unit tests are here for `npm run test:unit`.
 */
const long: readonly string[] = [
  'integration/batch-plans',
  'e2e/stack',
  'integration/list-plans',
  'e2e/webhook-recovery',
  'e2e/runbooks',
  'e2e/worker-crash',
  'integration/interleavings-new',
  'e2e/docs',
  'e2e/database-outage',
  'integration/interleavings-known',
  'e2e/restore',
  'e2e/monitoring',
  'planted/planted',
  'clients/clients',
  'integration/idempotency',
  'integration/endpoint-health',
  'integration/cancel',
  'integration/batch-handover',
  'integration/database-loss',
  'unit/arrival',
  'unit/lines',
  'unit/capacity',
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
