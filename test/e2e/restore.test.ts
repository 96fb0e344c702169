import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync } from 'node:fs';
import { appendFile, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { pauseBatch } from '../../src/db/batches.js';
import { exactlyOne } from '../../src/db/client.js';
import { findPayoutById } from '../../src/db/payouts.js';
import { eventually } from '../assertions/eventually.js';
import { archiveCommand } from '../fixtures/backupSettings.js';
import { type ApiClient, createClient, textOf } from '../fixtures/client.js';
import { beneficiary } from '../fixtures/requestPayout.js';
import { copyCluster, giveToOwner } from '../servers/clusterCopy.js';
import { createTestAccount, unbalancedCurrencies } from '../servers/database.js';
import { type PartName, type Processes, startProcesses } from '../servers/processes.js';

/** A deadline for a busy machine, not the promised time. */
const limitMs = 60_000;

const run = promisify(execFile);
const corridor = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));

/** Key retention settings for the next start of the bank and the workers; empty means the defaults. */
const memory: Record<string, string> = {};

const parts: readonly PartName[] = ['api', 'worker', 'batch-worker', 'temporal', 'postgres'];

let system: Processes;
let client: ApiClient;
let accountId: string;
let payee: string;
let cluster: string;
let backup: string;

/** The settings that docs/operations.md prescribes. */
const archiving = (archive: string) => [
  'archive_mode=on',
  `archive_command=${archiveCommand.replaceAll('/archive/', `${archive}/`)}`,
];

beforeAll(async () => {
  const archiveIn = (directory: string) => join(directory, 'postgres', 'archive');
  system = await startProcesses({
    env: memory,
    postgresSettings: (directory) => {
      const archive = archiveIn(directory);
      mkdirSync(archive, { recursive: true });
      // The server may run as another user.
      chmodSync(archive, 0o777);
      return archiving(archive);
    },
  });
  cluster = join(system.directory, 'postgres', 'cluster');
  backup = join(system.directory, 'backup');
  const { account, apiKey } = await createTestAccount(system.database);
  accountId = account.id;
  client = createClient(system.apiUrl, apiKey);
  payee = textOf(await client('POST /v1/beneficiaries', { form: beneficiary }), 'id');
});
afterAll(() => system?.remove());

async function pay(reference: string): Promise<string> {
  const form = { source_currency: 'USD', amount: '1000', beneficiary: payee, reference };
  return textOf(await client('POST /v1/payouts', { form }), 'id');
}

/** An accepted batch of one payout, which is submitted to the bank only when the batch is resumed. */
async function withhold(): Promise<{ readonly batchId: string; readonly id: string }> {
  // Without its worker, nothing can be submitted between the request and the pause.
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

/** Makes the bank forget every key, as it would after a day. */
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

/** Runs a command as an operator does, and returns what it prints. */
async function operate(...words: readonly string[]): Promise<string> {
  const env = { ...process.env, ...system.operatorEnv };
  return (await run(process.execPath, [corridor, ...words], { env })).stdout;
}

/** Resumes a batch; its workflow processes it at once. */
const resume = (batchId: string) => operate('batches', 'resume', batchId, '--reason', 'a test');

/** A new key of the account, which will leak. */
async function createKey() {
  const words = ['--account', accountId, '--name', 'leaked', '--reason', 'a test'];
  const shown = await operate('keys', 'create', ...words);
  const [, key = '', id = ''] = /^API key {2}(\S+)\n +(key_\w+)/.exec(shown) ?? [];
  const withKey = createClient(system.apiUrl, key);
  return { id, status: async () => (await withKey('GET /v1/balances')).status };
}

const audited = z.array(
  z.looseObject({
    ...{ createdAt: z.iso.datetime(), subjectId: z.string() },
    command: z.looseObject({ kind: z.string() }),
  }),
);

/** Revokes the keys that were revoked after the moment, according to the list that was saved. */
async function repeatRevocations(list: string, moment: string): Promise<void> {
  const later = audited
    .parse(JSON.parse(list))
    .filter(({ createdAt: at }) => new Date(at) > new Date(moment))
    .filter(({ command }) => command.kind === 'keys revoke');
  expect(later).toHaveLength(1);
  for (const { subjectId: id } of later)
    await operate('keys', 'revoke', id, '--reason', 'as before the restore');
}

/** Waits until all changes so far are in the WAL archive. */
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

/** Replaces the cluster with the backup, to be recovered from the archive to a point in time. */
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

it('a restore to an earlier moment pays nothing twice, and reports payouts that it has lost', {
  timeout: 300_000,
}, async ({ annotate }) => {
  const before = await pay('Invoice 1');
  await untilSettled(before);
  const leaked = await createKey();
  // Changes made during the copy are in the archive.
  await copyCluster(system.database, cluster, backup);
  const archived = await pay('Invoice 2');
  await untilSettled(archived);
  const withheld = await withhold();
  await eventually('the schedule has recorded a heartbeat', limitMs, async () => {
    const beats = await system.database`select from heartbeats`;
    return beats.count === 1 || undefined;
  });
  // The bank receives this transfer, but its answer is lost.
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
  await operate('keys', 'revoke', leaked.id, '--reason', 'it has leaked');
  await untilArchived();
  const day = new Date(moment).toISOString().slice(0, 10);
  const list = await operate('audit', '--since', day, '--json');

  for (const part of parts) await system.crash(part);
  await restoreTo(moment);
  // Temporal's own data is lost too, as it would not match the older rows anyway.
  await rm(join(system.directory, 'temporal.sqlite'));
  const startedMs = performance.now();
  await system.start('postgres');
  const keys = await operate('keys', 'list', '--account', accountId);
  expect(keys).toMatch(new RegExp(`${leaked.id} .* active\n`));
  await repeatRevocations(list, moment);
  await system.startAll();
  expect(await leaked.status()).toBe(401);
  const answer = await client(`GET /v1/payouts/${underWay}`);
  expect(answer.body).toMatchObject({ status: 'processing' });

  await untilSettled(underWay);
  await annotate(`settled ${Math.round(performance.now() - startedMs)} ms after the restore`);
  for (const id of [before, archived]) {
    expect((await client(`GET /v1/payouts/${id}`)).body).toMatchObject({ status: 'settled' });
  }
  expect(await client(`GET /v1/payouts/${forgotten}`)).toMatchObject({ status: 404 });
  // The database believes that this payout was never submitted, because it was paid in the lost period.
  // The bank would pay it again.
  await forgetKeys();
  await resume(withheld.batchId);
  const parked = await eventually('the item waits for an operator', limitMs, async () => {
    const row = await findPayoutById(system.database, withheld.id);
    return row?.attentionReason === null ? undefined : row;
  });
  expect(parked).toMatchObject({ status: 'processing', attentionReason: 'outcome_unknown' });
  expect(parked?.attentionDetail).toContain('in a period that the database has lost');
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
