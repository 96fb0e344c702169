import { execFile } from 'node:child_process';
import { appendFile, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { pauseBatch } from '../../src/db/batches.js';
import { exactlyOne } from '../../src/db/client.js';
import { findPayoutById } from '../../src/db/payouts.js';
import { eventually } from '../assertions/eventually.js';
import { type ApiClient, createClient, textOf } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { copyCluster, giveToOwner } from '../servers/clusterCopy.js';
import { createTestAccount, unbalancedCurrencies } from '../servers/database.js';
import { type PartName, type Processes, startProcesses } from '../servers/processes.js';

/** A deadline for a machine that has much to do, and not what is promised. */
const limitMs = 60_000;

const run = promisify(execFile);
const corridor = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));

/** How the bank and the workers are started from now on: with a bank that forgets keys, or not. */
const memory: Record<string, string> = {};

const parts: readonly PartName[] = ['api', 'worker', 'batch-worker', 'temporal', 'postgres'];

let system: Processes;
let client: ApiClient;
let payee: string;
let cluster: string;
let backup: string;

/** What docs/operations.md tells an operator to set. */
const archiving = (archive: string) => [
  'archive_mode=on',
  `archive_command=mkdir -p ${archive} && cp %p ${archive}/%f`,
];

beforeAll(async () => {
  const archiveIn = (directory: string) => join(directory, 'postgres', 'archive');
  system = await startProcesses({
    env: memory,
    postgresSettings: (directory) => archiving(archiveIn(directory)),
  });
  cluster = join(system.directory, 'postgres', 'cluster');
  backup = join(system.directory, 'backup');
  const { apiKey } = await createTestAccount(system.database);
  client = createClient(system.apiUrl, apiKey);
  payee = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
});
afterAll(() => system?.remove());

async function pay(reference: string): Promise<string> {
  const form = { source_currency: 'USD', amount: '1000', beneficiary: payee, reference };
  return textOf(await client('POST /v1/payouts', { form }), 'id');
}

/** A batch of one payout that is accepted, and given to the bank when the batch is resumed. */
async function withhold(): Promise<{ readonly batchId: string; readonly id: string }> {
  // Nothing can be sent between the request and the pause.
  await system.crash('batch-worker');
  const item = { source_currency: 'USD', amount: '1000', beneficiary: payee };
  const json = { payouts: [{ ...item, reference: 'Invoice 5' }] };
  const batchId = textOf(await client('POST /v1/batches', { json }), 'id');
  expect(await pauseBatch(system.database, batchId)).toBe(true);
  await system.start('batch-worker');
  const id = await eventually('the item is accepted', limitMs, async () => {
    const [row] = await system.database<{ id: string }[]>`
      select id from payouts where batch_id = ${batchId} and status = 'processing'`;
    return row?.id;
  });
  return { batchId, id };
}

/** The bank has forgotten every key by now, as after a day. */
async function forgetKeys(): Promise<void> {
  for (const part of ['sandbox-bank', 'worker', 'batch-worker'] as const) await system.crash(part);
  memory['BANK_KEY_RETENTION_SECONDS'] = '1';
  memory['SANDBOX_KEY_RETENTION_SECONDS'] = '1';
  await system.startAll();
}

function untilSettled(id: string): Promise<unknown> {
  return eventually(`${id} is settled`, limitMs, async () => {
    const { body } = await client(`GET /v1/payouts/${id}`);
    return body['status'] === 'settled' || undefined;
  });
}

/** As an operator resumes a batch; its workflow looks at it at once. */
async function resume(batchId: string): Promise<void> {
  const words = ['batches', 'resume', batchId, '--reason', 'a test'];
  await run(process.execPath, [corridor, ...words], {
    env: { ...process.env, ...system.operatorEnv },
  });
}

/** Everything up to now is in the archive. */
async function untilArchived(): Promise<void> {
  const [switched] = await system.database<{ segment: string }[]>`
    select pg_walfile_name(pg_switch_wal()) as segment`;
  const { segment } = exactlyOne(switched);
  await eventually(`${segment} is archived`, limitMs, async () => {
    const [row] = await system.database<{ last: string | null }[]>`
      select last_archived_wal as last from pg_stat_archiver`;
    return (row?.last ?? '') >= segment || undefined;
  });
}

/** Puts the backup in the place of the cluster, to be brought to a moment by the archive. */
async function restoreTo(moment: string): Promise<void> {
  const archive = join(system.directory, 'postgres', 'archive');
  await rm(cluster, { recursive: true });
  await run('cp', ['-a', backup, cluster]);
  await mkdir(join(cluster, 'pg_wal'), { mode: 0o700 });
  await writeFile(join(cluster, 'recovery.signal'), '');
  await appendFile(
    join(cluster, 'postgresql.auto.conf'),
    `restore_command = 'cp ${archive}/%f %p'
recovery_target_time = '${moment}'
recovery_target_action = 'promote'
`,
  );
  await giveToOwner(cluster);
}

it('pays nothing twice after a restore to an earlier moment, and says what it does not know', {
  timeout: 300_000,
}, async ({ annotate }) => {
  const before = await pay('Invoice 1');
  await untilSettled(before);
  // The archive has what changes meanwhile.
  await copyCluster(system.database, cluster, backup);
  const archived = await pay('Invoice 2');
  await untilSettled(archived);
  const withheld = await withhold();
  await eventually('the schedule has recorded a heartbeat', limitMs, async () => {
    const beats = await system.database`select from heartbeats`;
    return beats.count === 1 || undefined;
  });
  // The bank has this one, and its answer is lost.
  const kept = system.rail.keepAnswer('/transfers');
  const underWay = await pay('simulate: delay 3s');
  await kept;
  const [row] = await system.database<{ moment: string }[]>`
    select clock_timestamp()::text as moment`;
  const { moment } = exactlyOne(row);
  const forgotten = await pay('Invoice 4');
  await untilSettled(forgotten);
  await untilSettled(underWay);
  await resume(withheld.batchId);
  await untilSettled(withheld.id);
  await untilArchived();

  for (const part of parts) await system.crash(part);
  await restoreTo(moment);
  // Temporal's own data is lost as well: nothing in it would agree with the rows of before.
  await rm(join(system.directory, 'temporal.sqlite'));
  const startedMs = performance.now();
  await system.startAll();
  const answer = await client(`GET /v1/payouts/${underWay}`);
  expect(answer.body).toMatchObject({ status: 'processing' });

  await untilSettled(underWay);
  await annotate(`settled ${Math.round(performance.now() - startedMs)} ms after the restore`);
  for (const id of [before, archived]) {
    expect((await client(`GET /v1/payouts/${id}`)).body).toMatchObject({ status: 'settled' });
  }
  expect(await client(`GET /v1/payouts/${forgotten}`)).toMatchObject({ status: 404 });
  // What the database takes for never sent was paid in the time that it has lost, and the bank would
  // pay it again.
  await forgetKeys();
  await resume(withheld.batchId);
  const parked = await eventually('the item waits for an operator', limitMs, async () => {
    const row = await findPayoutById(system.database, withheld.id);
    return row?.attentionReason === null ? undefined : row;
  });
  expect(parked).toMatchObject({ status: 'processing', attentionReason: 'outcome_unknown' });
  expect(parked?.attentionDetail).toContain('in a time that the database has lost');
  expect((await system.transfers()).toSorted()).toEqual(
    [before, archived, underWay, forgotten, withheld.id].toSorted(),
  );
  expect(await unbalancedCurrencies(system.database)).toEqual([]);

  await system.temporal.workflow.execute('statement', {
    taskQueue: 'payouts',
    workflowId: 'statement-after-restore',
  });
  const reconciled = await run(process.execPath, [corridor, 'reconcile'], {
    env: { ...process.env, ...system.operatorEnv },
  }).catch((error: unknown) => error);
  expect(reconciled).toMatchObject({
    code: 1,
    stdout: expect.stringContaining(`${forgotten}  debit no such payout`),
  });
});
