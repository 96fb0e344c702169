import { configDefaults, defineConfig } from 'vitest/config';

/** Real servers answer slowly on a busy machine; a hang still ends within these. */
const patient = { testTimeout: 60_000, hookTimeout: 120_000 } as const;

/** They need a database each and no other server, and measure no time: two run at once. */
const databaseOnly = [
  'test/integration/interleavings-{known,new}.test.ts',
  'test/integration/{batch,list}-plans.test.ts',
  'test/integration/{ledger-guards,operator-guards,proof-of-release,roles}.test.ts',
];

export default defineConfig({
  test: {
    pool: 'forks',
    // Two cores carry the servers as well: what needs many of them runs one file at a time.
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
          // A clock that jumps goes on while a busy machine keeps a workflow waiting.
          fileParallelism: false,
          ...patient,
        },
      },
      {
        test: {
          name: 'database',
          include: databaseOnly,
          globalSetup: ['test/support/globalPostgres.ts'],
          ...patient,
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          exclude: [...configDefaults.exclude, ...databaseOnly],
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
