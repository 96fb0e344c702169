import { defineConfig } from 'vitest/config';

/** Real servers answer slowly on a busy machine; a hang still ends within these. */
const patient = { testTimeout: 60_000, hookTimeout: 120_000 } as const;

export default defineConfig({
  test: {
    pool: 'forks',
    // Two cores carry the servers as well; one test file at a time keeps them honest.
    maxWorkers: 2,
    passWithNoTests: false,
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts', 'test/architecture.test.ts'],
          // Properties run thousands of cases, and the cores are shared.
          testTimeout: 60_000,
        },
      },
      {
        test: {
          name: 'replay',
          include: ['test/replay/**/*.test.ts'],
          globalSetup: ['test/support/globalWorkflows.ts'],
          ...patient,
        },
      },
      {
        test: {
          name: 'workflow',
          include: ['test/workflow/**/*.test.ts'],
          globalSetup: ['test/support/globalPostgres.ts', 'test/support/globalWorkflows.ts'],
          fileParallelism: false,
          ...patient,
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          globalSetup: [
            'test/support/globalPostgres.ts',
            'test/support/globalTemporal.ts',
            'test/support/globalWorkflows.ts',
          ],
          fileParallelism: false,
          ...patient,
        },
      },
      {
        test: {
          // Bugs are planted in a copy of the source, and tests of the other projects must fail.
          name: 'planted',
          include: ['test/planted/**/*.test.ts'],
          globalSetup: ['test/support/globalPostgres.ts'],
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          globalSetup: ['test/support/globalBuild.ts'],
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 180_000,
        },
      },
    ],
  },
});
