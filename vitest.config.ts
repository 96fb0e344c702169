import { join } from 'node:path';
import { configDefaults, defineConfig } from 'vitest/config';
import { LongestFirst } from './test/longestFirst.js';

// Some two hundred processes load the same modules: each after the first finds them compiled.
process.env['NODE_COMPILE_CACHE'] ??= join(import.meta.dirname, 'node_modules/.cache/compiled');

/** Real servers answer slowly on a busy machine; a hang still ends within these. */
const polled = { poll: { timeout: 20_000 } } as const;
const patient = { testTimeout: 120_000, hookTimeout: 120_000, expect: polled } as const;

/** They measure time, so nothing else runs beside them. */
const alone = ['test/integration/{attacks,prefer-wait,webhook-tarpit}.test.ts'];

/** The worker of batches gives way to everything else: beside many tests it takes minutes. */
const givesWay = ['test/e2e/{batch-crash,recovery}.test.ts'];

/**
 * Temporal as in production, which is built before. Twenty requests a second are kept up for minutes, on
 * two of everything: nothing else runs beside it either.
 */
const topology = ['test/e2e/rolling-replacement.test.ts'];

/**
 * What a busy machine disturbs, when those that load it are done: a clock that jumps goes on while
 * a workflow is kept waiting, and the worker of batches has to get its turn. None needs a core of
 * its own, so three files run beside each other.
 */
const calm = { maxWorkers: 3, sequence: { groupOrder: 1 } } as const;

/** They need a database each and no other server. */
const databaseOnly = [
  'test/integration/interleavings-{known,new}.test.ts',
  'test/integration/{batch,list}-plans.test.ts',
  'test/integration/{announcements,backlog,ledger-guards,operator-guards,proof-of-release,roles}.test.ts',
];

const onSystem = {
  globalSetup: [
    'test/servers/globalPostgres.ts',
    'test/servers/globalTemporal.ts',
    'test/servers/globalWorkflows.ts',
  ],
  ...patient,
};

const onBuild = {
  globalSetup: ['test/servers/globalBuild.ts'],
  testTimeout: 120_000,
  hookTimeout: 180_000,
  expect: polled,
};

// V8 counts the calls of what is compiled after it was asked to: no file before may have loaded it.
const counting = ['test/unit/decode.test.ts'];

const hasOwnTemporals = (process.env['TEMPORAL_ADDRESS'] ?? '') === '';

export default defineConfig({
  test: {
    // Files of most projects share their processes, one after another (`isolate: false`): to load the
    // service and Temporal's SDK takes as long as many a file. What a file changes in its process it
    // puts back. Three for two cores: half of what the longest files take is waiting.
    pool: 'forks',
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
    passWithNoTests: false,
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts', 'test/architecture.test.ts'],
          exclude: [...configDefaults.exclude, ...counting],
          isolate: false,
          // Properties run thousands of cases, and the cores are shared.
          testTimeout: 60_000,
        },
      },
      {
        test: { name: 'unit-counting', include: counting, testTimeout: 60_000 },
      },
      {
        test: {
          name: 'replay',
          include: ['test/replay/**/*.test.ts'],
          globalSetup: ['test/servers/globalWorkflows.ts'],
          ...patient,
        },
      },
      {
        test: {
          name: 'workflow',
          include: ['test/workflow/**/*.test.ts'],
          globalSetup: ['test/servers/globalPostgres.ts', 'test/servers/globalWorkflows.ts'],
          ...calm,
          isolate: false,
          ...patient,
        },
      },
      {
        test: {
          name: 'database',
          include: databaseOnly,
          globalSetup: ['test/servers/globalPostgres.ts'],
          isolate: false,
          ...patient,
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/{integration,clients}/**/*.test.ts'],
          exclude: [...configDefaults.exclude, ...databaseOnly, ...alone],
          // The workers of two files would take each other's tasks from one Temporal.
          fileParallelism: hasOwnTemporals,
          isolate: !hasOwnTemporals,
          ...onSystem,
          globalSetup: [...onSystem.globalSetup, 'test/servers/globalClients.ts'],
        },
      },
      {
        test: {
          name: 'alone',
          include: alone,
          fileParallelism: false,
          ...onSystem,
          globalSetup: ['test/servers/globalBuild.ts', ...onSystem.globalSetup],
        },
      },
      {
        test: {
          // Bugs are planted in a copy of the source, and tests of the other projects must fail.
          name: 'planted',
          include: ['test/planted/**/*.test.ts'],
          globalSetup: ['test/servers/globalPostgres.ts'],
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          exclude: [...configDefaults.exclude, ...givesWay, ...topology],
          ...onBuild,
        },
      },
      {
        test: { name: 'e2e-alone', include: givesWay, ...calm, ...onBuild },
      },
      {
        test: {
          name: 'e2e-topology',
          include: topology,
          fileParallelism: false,
          ...onBuild,
          globalSetup: [...onBuild.globalSetup, 'test/servers/globalTemporalServer.ts'],
        },
      },
    ],
  },
});
