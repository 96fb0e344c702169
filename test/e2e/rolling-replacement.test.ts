import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import type { Part } from '../../sandbox/stack/process.js';
import { migrate } from '../../src/db/migrate.js';
import { railKey } from '../../src/domain/payout.js';
import { eventually } from '../assertions/eventually.js';
import { type LoadBalancer, startLoadBalancer } from '../fakes/loadBalancer.js';
import { type Receiver, startReceiver } from '../fakes/receiver.js';
import { unbalancedCurrencies } from '../servers/database.js';
import { type Processes, type ReplicaName, startProcesses } from '../servers/processes.js';
import { distinctEvents, expectedItems, startOrderedBatch } from './orderedBatch.js';
import { type Caller, openCaller, startLoad } from './steadyLoad.js';

/** A deadline for a machine that has much to do, and not what is promised. */
const limitMs = 60_000;
const kinds: readonly ReplicaName[] = ['api', 'worker', 'batch-worker'];

let balancer: LoadBalancer;
let parts: Processes;
let receiver: Receiver;
let caller: Caller;
/** The processes that run beside those that `parts` has started, or instead of them. */
const replicas = new Map<ReplicaName, Part[]>();

beforeAll(async () => {
  [balancer, receiver] = await Promise.all([startLoadBalancer(), startReceiver()]);
  parts = await startProcesses({
    env: { STOP_NOTICE_SECONDS: '2' },
    callbacksTo: balancer.url,
    isTemporalOnPostgres: true,
    // As in docker-compose.yml: each of the four services of Temporal has pools of its own.
    postgresSettings: () => ['max_connections=400'],
  });
  await balancer.add({ url: parts.apiUrl, readyUrl: readyUrlOf(parts.apiUrl) });
  for (const kind of kinds) replicas.set(kind, [await startReplica(kind)]);
  caller = await openCaller(parts, balancer.url, receiver);
});
afterAll(async () => {
  for (const part of [...replicas.values()].flat()) await part.stop();
  await Promise.all([parts?.remove(), balancer?.close(), receiver?.close()]);
});

async function startReplica(kind: ReplicaName): Promise<Part> {
  const part = await parts.startReplica(kind);
  const url = part.announced;
  if (kind === 'api') await balancer.add({ url, readyUrl: readyUrlOf(url) });
  return part;
}

/** Where an API says whether it is ready, by what it has logged at its start. */
function readyUrlOf(url: string): string {
  const line = parts.lines.find((each) => each.includes(`"ready":"${url}"`)) ?? '';
  const metrics = /"metrics":"(http[^"]+)"/.exec(line)?.[1];
  if (metrics === undefined)
    throw new Error(`The API at ${url} has not said where its metrics are.`);
  return `${metrics}/readyz`;
}

/** Replaces both processes of a kind, one after the other: the new one is there before the old goes. */
async function replace(kind: ReplicaName): Promise<void> {
  const next = [await startReplica(kind)];
  await parts.stop(kind);
  next.push(await startReplica(kind));
  for (const old of replicas.get(kind) ?? []) await old.stop();
  replicas.set(kind, next);
}

/** Waits until the payouts are settled: each has been sent once, and so has everything else. */
async function expectPaidOnce(ids: readonly string[]): Promise<void> {
  await eventually('all are settled', limitMs, async () => {
    const open = await parts.database`
      select from payouts where id = any (${ids}) and status <> 'settled'`;
    return open.length === 0 || undefined;
  });
  const transfers = await parts.transfers();
  expect(new Set(transfers).size).toBe(transfers.length);
  expect(transfers).toEqual(expect.arrayContaining(ids.map(railKey)));
}

it('replaces every process in turn without a failed request, under load and a batch', {
  timeout: 300_000,
}, async ({ annotate }) => {
  const load = startLoad(caller, 'replacement');
  await eventually('some were paid', limitMs, () => load.paid.length > 40 || undefined);
  await annotate(`p99 before: ${load.p99Ms()}`);
  const batch = await startOrderedBatch({ ...parts, apiUrl: balancer.url }, 1_000, 10);
  for (const kind of kinds) {
    await replace(kind);
    await annotate(`p99 while ${kind} was replaced: ${load.p99Ms()}`);
  }
  await parts.stop('temporal');
  await parts.start('temporal');
  await load.stop();
  await annotate(`p99 while Temporal was replaced: ${load.p99Ms()}`);
  expect(load.failed).toEqual([]);

  await batch.untilOver(limitMs);
  const { items } = await batch.ending();
  expect(items).toMatchObject(expectedItems(1_000));
  await batch.receiver.close();

  await expectPaidOnce(load.paid);
  const ofBatch = items.reduce((sum, item) => sum + item.transfers, 0);
  expect((await parts.transfers()).length).toBe(load.paid.length + ofBatch);
  const events = await parts.database<{ id: string }[]>`
      select id from events where account_id = ${caller.accountId}`;
  await eventually(
    'all webhooks came',
    limitMs,
    () => distinctEvents(receiver).size === events.length || undefined,
  );
  expect(await unbalancedCurrencies(parts.database)).toEqual([]);
});

/** A change of the schema as CONTRIBUTING.md describes it, of the table that every request meets. */
const schemaChange = [
  // What a release long ago has left.
  "alter table payouts add column channel text not null default 'api'",
  // Expand: the new one is null in older rows, and every release that runs writes it by its default.
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

it('changes the schema under load without a failed request, also behind a long query', {
  timeout: 120_000,
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
  await eventually('it has given way three times', limitMs, async () => {
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
