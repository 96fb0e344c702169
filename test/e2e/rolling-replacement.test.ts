import { readFileSync } from 'node:fs';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { type Part, runCommand, sendSignal } from '../../sandbox/stack/process.js';
import { findTemporalCli } from '../../sandbox/stack/temporalBinary.js';
import { exactlyOne } from '../../src/db/client.js';
import { migrate } from '../../src/db/migrate.js';
import { findPayoutById } from '../../src/db/payouts.js';
import { railKey } from '../../src/domain/payout.js';
import { railUpdateSignal } from '../../src/workflows/messages.js';
import { eventually } from '../assertions/eventually.js';
import { callBack, newsOf } from '../fakes/bankCallback.js';
import { type LoadBalancer, startLoadBalancer } from '../fakes/loadBalancer.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { textOf } from '../fixtures/client.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { finderOptions } from '../servers/finders.js';
import {
  type Processes,
  type Release,
  type ReplicaName,
  startProcesses,
} from '../servers/processes.js';
import { change, makeChangedRelease } from './changedRelease.js';
import {
  distinctEvents,
  expectedItems,
  type OrderedBatch,
  startOrderedBatch,
} from './orderedBatch.js';
import { type Caller, openCaller, startLoad } from './steadyLoad.js';

/** A deadline for a busy machine, not the promised time. */
const limitMs = 60_000;
const kinds: readonly ReplicaName[] = ['api', 'worker', 'batch-worker', 'temporal'];

let balancer: LoadBalancer;
let parts: Processes;
let receiver: Receiver;
let caller: Caller;
/** The processes that run in addition to those that `parts` has started, or instead of them. */
const replicas = new Map<ReplicaName, Part[]>();

beforeAll(async () => {
  [balancer, receiver] = await Promise.all([startLoadBalancer(), startReceiver()]);
  parts = await startProcesses({
    env: { STOP_NOTICE_SECONDS: '2' },
    callbacksTo: balancer.url,
    isTemporalOnPostgres: true,
    // Each of a Temporal server's four services has its own pools, and up to three servers run.
    postgresSettings: () => ['max_connections=600'],
  });
  await balancer.add({ url: parts.apiUrl, readyUrl: readyUrlOf(parts.apiUrl) });
  for (const kind of kinds) await startReplica(kind);
  caller = await openCaller(parts, balancer.url, receiver);
});
afterAll(async () => {
  for (const kind of ['api', 'batch-worker', 'worker'] as const) await stopAll(replicasOf(kind));
  // A graceful stop would take 20 s to hand over its work.
  for (const { pid, exited } of replicasOf('temporal')) {
    sendSignal(pid, 'SIGKILL');
    await exited;
  }
  await Promise.all([parts?.remove(), balancer?.close(), receiver?.close()]);
});

const replicasOf = (kind: ReplicaName): readonly Part[] => replicas.get(kind) ?? [];

async function startReplica(kind: ReplicaName): Promise<Part> {
  const part = await parts.startReplica(kind);
  replicas.set(kind, [...replicasOf(kind), part]);
  const url = part.announced;
  if (kind === 'api') await balancer.add({ url, readyUrl: readyUrlOf(url) });
  return part;
}

/** The readiness URL of an API, taken from its startup log. */
function readyUrlOf(url: string): string {
  const line = parts.lines.find((each) => each.includes(`"ready":"${url}"`)) ?? '';
  const metrics = /"metrics":"(http[^"]+)"/.exec(line)?.[1];
  if (metrics === undefined)
    throw new Error(`The API at ${url} has not logged the URL of its metrics.`);
  return `${metrics}/readyz`;
}

/**
 * Replaces both processes of a kind, one after the other. The new process starts before the old one
 * stops; with Temporal, whose servers have separate addresses, the old one stops first.
 */
async function replace(kind: ReplicaName): Promise<void> {
  const start = () => startReplica(kind);
  const swap = async (stop: () => Promise<void>) => {
    const steps = kind === 'temporal' ? [stop, start] : [start, stop];
    for (const step of steps) await step();
  };
  const olds = replicasOf(kind);
  await swap(() => parts.stop(kind));
  await swap(() => stopReplicas(kind, olds));
}

async function stopReplicas(kind: ReplicaName, stopped: readonly Part[]): Promise<void> {
  await stopAll(stopped);
  replicas.set(
    kind,
    replicasOf(kind).filter((part) => !stopped.includes(part)),
  );
}

/** Time to clear the backlog of a machine that settles half as many payouts a second as are sent. */
const backlogLimitMs = 300_000;

/** Waits until the payouts are settled, and verifies that these and all others were paid once. */
async function expectPaidOnce(ids: readonly string[]): Promise<void> {
  await eventually('all payouts are settled', backlogLimitMs, async () => {
    const open = await parts.database`
      select from payouts where id = any (${ids}) and status <> 'settled'`;
    return open.length === 0 || undefined;
  });
  const transfers = await parts.transfers();
  expect(new Set(transfers).size).toBe(transfers.length);
  expect(transfers).toEqual(expect.arrayContaining(ids.map(railKey)));
}

// A machine that settles fewer than 20 payouts a second clears the backlog after the load has ended.
it('a rolling replacement of every process fails no request, under load and batches', {
  timeout: 900_000,
}, async ({ annotate }) => {
  const load = startLoad(caller, 'replacement');
  await eventually('some were paid', limitMs, () => load.paid.length > 40 || undefined);
  await annotate(`p99 before: ${load.p99Ms()}`);
  const before = load.answered();
  const batches: OrderedBatch[] = [];
  for (const kind of kinds) {
    const batch = await startOrderedBatch({ ...parts, apiUrl: balancer.url }, 250, 10);
    batches.push(batch);
    await batch.untilSome('sent');
    await replace(kind);
    await annotate(`p99 while ${kind} was replaced: ${load.p99Ms()}`);
  }
  await load.stop();
  await annotate(`p99 of the whole replacement: ${load.p99Ms(before)}`);
  expect(load.failed).toEqual([]);

  let ofBatches = 0;
  for (const batch of batches) {
    await batch.untilOver(limitMs);
    const { items } = await batch.ending();
    expect(items).toMatchObject(expectedItems(250));
    await batch.receiver.close();
    ofBatches += items.reduce((sum, item) => sum + item.transfers, 0);
  }

  await expectPaidOnce(load.paid);
  expect((await parts.transfers()).length).toBe(load.paid.length + ofBatches);
  const events = await parts.database<{ id: string }[]>`
      select id from events where account_id = ${caller.accountId}`;
  await eventually(
    'all webhooks are received',
    limitMs,
    () => distinctEvents(receiver).size === events.length || undefined,
  );
  expect(await unbalancedCurrencies(parts.database)).toEqual([]);
});

/** A schema change as CONTRIBUTING.md describes it, on the table that every request uses. */
const schemaChange = [
  // A column that a much older release left behind.
  "alter table payouts add column channel text not null default 'api'",
  // Expand: the new column is null in older rows, and every running release fills it by its default.
  "alter table payouts add column origin text; alter table payouts alter column origin set default 'api'",
  `-- In steps of a hundred rows.
   update payouts set origin = channel
    where id in (select id from payouts where origin is null limit 100)`,
  'alter table payouts add constraint origin_given check (origin is not null) not valid',
  'alter table payouts validate constraint origin_given',
  `alter table payouts alter column origin set not null;
   alter table payouts drop constraint origin_given`,
  // Contract.
  'alter table payouts drop column channel',
];

it('a migration changes the schema under load without a failed request, also behind a long query', {
  timeout: 600_000,
}, async ({ annotate }) => {
  const directory = await mkdtemp(join(tmpdir(), 'corridor-migrations-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  await cp(new URL('../../src/db/migrations', import.meta.url), directory, { recursive: true });
  const names = schemaChange.map((_, step) => `9${step}00_step.sql`);
  for (const [step, text] of schemaChange.entries())
    await writeFile(join(directory, names[step] ?? ''), text);

  const load = startLoad(caller, 'schema');
  await eventually('some were paid', limitMs, () => load.paid.length > 40 || undefined);
  await annotate(`p99 before: ${load.p99Ms()}`);
  const longQuery = Promise.withResolvers<void>();
  const reading = parts.database.begin(async (sql) => {
    await sql`set local idle_in_transaction_session_timeout = '60s'`;
    await sql`select count(*) from payouts`;
    await longQuery.promise;
  });
  const migrating = migrate(parts.database, pathToFileURL(`${directory}/`));
  let waits = 0;
  let wasWaiting = false;
  await eventually('the migration has given way three times', limitMs, async () => {
    const rows = await parts.database`
      select from pg_locks where mode = 'AccessExclusiveLock' and not granted`;
    const isWaiting = rows.length > 0;
    if (isWaiting && !wasWaiting) waits += 1;
    wasWaiting = isWaiting;
    return waits > 3 || undefined;
  });
  longQuery.resolve();
  expect(await migrating).toEqual(names);
  await reading;
  await load.stop();
  await annotate(`p99 while the schema was changed: ${load.p99Ms()}`);
  expect(load.failed).toEqual([]);
  await expectPaidOnce(load.paid);
  const [row] = await parts.database`
    select count(*) filter (where origin <> 'api')::int as wrong, count(distinct origin)::int as origins
      from payouts`;
  expect(row).toEqual({ wrong: 0, origins: 1 });
  expect(await unbalancedCurrencies(parts.database)).toEqual([]);
});

const guide = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8');

/** Runs a Temporal CLI command from the guide for a build. */
async function asTheGuideSays(command: 'set-current-version' | 'terminate', buildId: string) {
  const [text = ''] = new RegExp(`^temporal .*${command}(?:.*\\\\\n)?.*`, 'm').exec(guide) ?? [];
  const cli = await findTemporalCli(finderOptions('TEMPORAL_CLI_PATH'));
  const { TEMPORAL_ADDRESS } = parts.operatorEnv;
  const exit = await runCommand({
    command: 'sh',
    args: ['-c', text.replace(/\bNEW\b/, buildId)],
    env: { ...process.env, TEMPORAL_ADDRESS, PATH: `${dirname(cli)}:${process.env['PATH']}` },
    timeoutMs: limitMs,
  });
  if (exit.code !== 0) throw new Error([text, ...exit.lastWords].join('\n'));
}

/** Starts one worker of each kind; the first worker of a build runs its workflows. */
async function startBuild(release: Release): Promise<readonly Part[]> {
  const names = ['worker', 'batch-worker'] as const;
  const workers = await Promise.all(names.map((name) => parts.startReplica(name, release)));
  onTestFinished(async () => void (await stopAll(workers)));
  return workers;
}

/** Stops the workers that earlier tests left running. */
async function stopUnversioned(): Promise<void> {
  for (const kind of ['worker', 'batch-worker'] as const) {
    if (parts.pids()[kind] !== undefined) await parts.stop(kind);
    await stopReplicas(kind, replicasOf(kind));
  }
}

const stopAll = (stopped: readonly Part[]) => Promise.all(stopped.map((part) => part.stop()));

/** The types of workflows with failing tasks, as counted by the alert CorridorWorkflowTasksFail. */
async function failingWorkflows([worker]: readonly Part[]): Promise<ReadonlySet<string>> {
  const rules = readFileSync(
    new URL('../../deploy/prometheus/alerts.yml', import.meta.url),
    'utf8',
  );
  const [, rule = ''] = rules.split('- alert: CorridorWorkflowTasksFail');
  const metric = /increase\((\w+)/.exec(rule)?.[1] ?? '';
  const text = await (await fetch(`${worker?.announced}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line.startsWith(`${metric}{`));
  const failing = lines.filter((line) => line.includes('NonDeterminismError'));
  return new Set(failing.map((line) => /workflow_type="([^"]+)"/.exec(line)?.[1] ?? ''));
}

/** Requests payouts with this order for the bank. */
async function payFive(release: string, order: string): Promise<readonly string[]> {
  const sent = Array.from({ length: 5 }, (_, n) => caller.pay(`${release}-${n}`, order));
  return (await Promise.all(sent)).map((answer) => textOf(answer, 'id'));
}

/** Requests payouts that stay open until `settle`, and a batch that settles over forty seconds. */
async function openPayouts(release: string) {
  const ids = await payFive(release, 'simulate: never settle');
  const batch = await startOrderedBatch({ ...parts, apiUrl: balancer.url }, 40, 40);
  await batch.untilSome('sent');
  await eventually(`the payouts of ${release} are sent`, limitMs, async () => {
    const rows = await parts.database`
      select from payouts where id = any (${ids}) and status <> 'sent'`;
    return rows.length === 0 || undefined;
  });
  return { ids, batch };
}

/** Reports the payouts as settled, in the bank's place. */
async function settle(ids: readonly string[]): Promise<void> {
  const events = await Promise.all(
    ids.map(async (id) =>
      newsOf(exactlyOne(await findPayoutById(parts.database, id)), { type: 'settled' }),
    ),
  );
  const { callbackSecret } = parts;
  expect(await callBack({ apiUrl: balancer.url, bank: { callbackSecret } }, events)).toBe(200);
}

/** The number of these workflows that match the query. */
async function countOf(ids: readonly string[], query: string): Promise<number> {
  const among = `WorkflowId in ('${ids.join("','")}')`;
  return (await parts.temporal.workflow.count(`${query} and ${among}`)).count;
}

const isChanged = `TemporalChangeVersion = "${change}"`;
const isDoneByPatched = 'TemporalUsedWorkerDeploymentVersions = "corridor:patched"';

it('a release changes the steps of open payouts, and one that lacks patched() can be rolled back', {
  timeout: 900_000,
}, async ({ annotate }) => {
  const directory = await mkdtemp(join(tmpdir(), 'corridor-releases-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const [patched, unpatched] = await Promise.all([
    makeChangedRelease(directory, 'patched', { isPatched: true }),
    makeChangedRelease(directory, 'unpatched', { isPatched: false }),
  ]);
  const [first = [], second = [], third = []] = await Promise.all(
    [{ env: { TEMPORAL_WORKER_BUILD_ID: 'first' } }, patched, unpatched].map(startBuild),
  );
  await asTheGuideSays('set-current-version', 'first');
  await stopUnversioned();
  const load = startLoad(caller, 'releases');

  const old = await openPayouts('first');
  await asTheGuideSays('set-current-version', 'patched');
  await stopAll(first);
  await settle(old.ids);
  await expectPaidOnce(old.ids);
  expect(await failingWorkflows(second)).toEqual(new Set());
  await annotate(`p99 with patched(): ${load.p99Ms()}`);

  // Temporal lists a workflow's build only after the task in which the payout is settled.
  const listed = { timeout: limitMs };
  await expect.poll(() => countOf(old.ids, isDoneByPatched), listed).toBe(old.ids.length);
  const young = await openPayouts('patched');
  expect(await countOf(old.ids, isChanged)).toBe(0);
  await expect.poll(() => countOf(young.ids, isChanged), listed).toBe(young.ids.length);
  await asTheGuideSays('set-current-version', 'unpatched');
  // The same signal that the bank's callback sends.
  for (const id of young.ids) await parts.temporal.workflow.getHandle(id).signal(railUpdateSignal);
  // The previous build cannot continue these.
  const late = await payFive('unpatched', 'simulate: delay 8s');
  await eventually('the alert counts the failing workflows', limitMs, async () => {
    const failing = await failingWorkflows(third);
    return (failing.has('payout') && failing.has('batchChunk')) || undefined;
  });
  await asTheGuideSays('set-current-version', 'patched');
  await stopAll(third);
  await asTheGuideSays('terminate', 'unpatched');
  await settle(young.ids);
  await load.stop();
  expect(load.failed).toEqual([]);
  await annotate(`p99 without patched(), and rolled back: ${load.p99Ms()}`);

  for (const { batch } of [old, young]) {
    await batch.untilOver(limitMs);
    expect((await batch.ending()).items).toMatchObject(expectedItems(40));
    await batch.receiver.close();
  }
  await expectPaidOnce([...old.ids, ...young.ids, ...late, ...load.paid]);
  expect(await unbalancedCurrencies(parts.database)).toEqual([]);
});
