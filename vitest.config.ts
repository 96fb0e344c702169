import { join } from 'node:path';
import { configDefaults, defineConfig } from 'vitest/config';
import { LongestFirst } from './test/longestFirst.js';

// About two hundred processes load the same modules; the cache saves all but the first from compiling them.
process.env['NODE_COMPILE_CACHE'] ??= join(import.meta.dirname, 'node_modules/.cache/compiled');

/** Timeouts long enough for real servers on a busy machine, but short enough to end a hang. */
const polled = { poll: { timeout: 20_000 } } as const;
const patient = { testTimeout: 120_000, hookTimeout: 120_000, expect: polled } as const;

/** Tests that measure time, so nothing else runs at the same time. */
const alone = ['test/integration/{attacks,prefer-wait}.test.ts'];

/** Looks for waits of 15 s, and checks that the machine is quick enough to show them. Mostly waits itself. */
const waiting = ['test/integration/webhook-tarpit.test.ts'];

/** The batch worker yields to everything else, so next to many other tests these take minutes. */
const givesWay = ['test/e2e/{batch-crash,batch-restart,recovery}.test.ts'];

/**
 * Runs Temporal as in production, built beforehand. It sustains twenty requests per second for minutes
 * on two replicas of everything, so nothing else runs at the same time either.
 */
const topology = ['test/e2e/rolling-replacement.test.ts'];

/**
 * Tests that a busy machine disturbs, run after those that load it: a skipping clock continues while a
 * workflow is kept waiting, and the batch worker needs its share of the processor. None needs a core
 * of its own, so three files run at the same time.
 */
const calm = { maxWorkers: 3, sequence: { groupOrder: 1 } } as const;

/** Tests that need a database each and no other server. */
const databaseOnly = [
  'test/integration/interleavings-{known,new}.test.ts',
  'test/integration/{batch,list}-plans.test.ts',
  'test/integration/{announcements,backlog,decision-waits,ledger-guards,operator-guards,operator-lists,proof-of-release,roles}.test.ts',
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
  globalSetup: ['test/servers/globalBuild.ts', 'test/servers/globalTemporalCli.ts'],
  testTimeout: 120_000,
  hookTimeout: 180_000,
  expect: polled,
};

// V8 only counts calls of code compiled after counting began, so no earlier file may have loaded that code.
const counting = ['test/unit/decode.test.ts'];

const hasOwnTemporals = (process.env['TEMPORAL_ADDRESS'] ?? '') === '';

export default defineConfig({
  test: {
    // Files of most projects share processes, one after another (`isolate: false`), because loading the
    // service and Temporal's SDK takes as long as many a file. Each file must undo its changes to the
    // process.
    // Three workers on two cores, because the longest files spend half their time waiting.
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
          // Property tests run thousands of cases on shared cores.
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
          exclude: [...configDefaults.exclude, ...databaseOnly, ...alone, ...waiting],
          // With only one Temporal server, the workers of two files would take each other's tasks.
          fileParallelism: hasOwnTemporals,
          isolate: !hasOwnTemporals,
          ...onSystem,
          globalSetup: [...onSystem.globalSetup, 'test/servers/globalClients.ts'],
        },
      },
      { test: { name: 'waiting', include: waiting, ...calm, ...onSystem } },
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
          // Plants bugs in a copy of the source, where tests of the other projects must then fail.
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
