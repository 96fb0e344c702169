import { X509Certificate } from 'node:crypto';
import { readFile, statfs } from 'node:fs/promises';
import { type Environment, readMasterKeyConfig } from '../config.js';
import { hasMasterKeys } from '../db/accountKeys.js';
import type { Database } from '../db/client.js';
import { isMigrated } from '../db/migrate.js';
import { createKeyring } from '../db/personalData.js';
import { databaseRoles } from '../db/roles.js';
import { faultsOfTemporal } from '../temporal/health.js';
import { authenticate } from './connections.js';
import { printJson, wrapped } from './table.js';
import type { Call } from './usage.js';

/** Result of a check. `fault` says what to do, null if none was found; `detail` says why it was skipped. */
type Check = { readonly name: string; readonly fault: string | null; readonly detail: string };

/** Maximum clock difference: beyond it, a quote that is still valid could be refused. */
const clockToleranceMs = 1_000;
/** Days before a certificate expires at which the check fails: enough to get a new one. */
const certificateDays = 14;
/** PostgreSQL stops when its disk is full. This is more than a busy day of events and histories takes. */
const leastFreeBytes = 2 * 1024 ** 3;
const bankLimitMs = 5_000;

/** Checks the service's dependencies and prints a line for each, with a remedy for faults. False on any. */
export async function examine(call: Call): Promise<boolean> {
  const { database, isJson, environment } = call;
  const checks = [
    await check('database', () => databaseFault(database)),
    await check('schema', async () =>
      (await isMigrated(database)) ? '' : 'it is from an older build: run corridor migrate',
    ),
    await check('roles', () => rolesFault(database)),
    await check('operator key', async () => {
      await authenticate(call);
      return '';
    }),
    await check('master key', () => masterKeyFault(database, environment)),
    ...(await temporalChecks(call)),
    await check('bank', () => bankFault(environment)),
    await check('certificates', () => certificateFault(environment)),
    await check('disk', () => diskFault(call.directory)),
  ];
  if (isJson) printJson(checks);
  for (const { name, fault, detail } of isJson ? [] : checks) {
    const state = fault !== null ? 'FAILS' : detail === '' ? 'ok' : 'not checked';
    console.log(wrapped(fault ?? detail, `${name.padEnd(18)}${state}`, '    ').trimEnd());
  }
  return checks.every(({ fault }) => fault === null);
}

/** Runs a check. `find` returns '' if all is well, the fault, or in parentheses why it cannot check. */
async function check(name: string, find: () => Promise<string>): Promise<Check> {
  try {
    const found = await find();
    const isFault = found !== '' && !found.startsWith('(');
    return { name, fault: isFault ? found : null, detail: isFault ? '' : found };
  } catch (error) {
    const fault = error instanceof Error ? error.message : String(error);
    return { name, fault: fault === '' ? 'it does not answer' : fault, detail: '' };
  }
}

async function databaseFault(database: Database): Promise<string> {
  await database`select 1`;
  const begunMs = Date.now();
  const [row] = await database<{ now: Date; isStandby: boolean }[]>`
    select clock_timestamp() as now, pg_is_in_recovery() as is_standby`;
  if (row?.isStandby === true) return 'it is a standby: promote it, or connect to the primary';
  const offMs = Math.round((row?.now.getTime() ?? 0) - (begunMs + Date.now()) / 2);
  const side = offMs > 0 ? 'ahead of' : 'behind';
  return Math.abs(offMs) > clockToleranceMs
    ? `its clock is ${Math.abs(offMs)} ms ${side} this machine's: check NTP on both`
    : '';
}

/** Checks the grants: no process may change ledger entries, and only the worker may change payouts. */
async function rolesFault(database: Database): Promise<string> {
  const [row] = await database<{ roles: number; api: boolean; worker: boolean }[]>`
    select (select count(*)::int from pg_roles
             where rolname::text = any (${databaseRoles.map((role) => `corridor_${role}`)}::text[])) as roles,
           has_column_privilege('corridor_api', 'payouts', 'status', 'update')
             or has_table_privilege('corridor_api', 'ledger_entries', 'update, delete') as api,
           has_column_privilege('corridor_worker', 'payouts', 'status', 'update')
             and not has_table_privilege('corridor_worker', 'ledger_entries', 'update, delete') as worker`;
  if (row?.roles !== databaseRoles.length) return 'a role is missing: run corridor migrate';
  return row.api || !row.worker ? 'grants differ from the migrations: restore them' : '';
}

async function masterKeyFault(database: Database, env: Environment): Promise<string> {
  if (!env['MASTER_KEY'] && !env['MASTER_KEY_FILE']) return '(MASTER_KEY is not set here)';
  const keyring = createKeyring(readMasterKeyConfig(env).MASTER_KEY);
  const isComplete = await hasMasterKeys(database, keyring);
  return isComplete ? '' : 'MASTER_KEY lacks a key that wraps the keys of accounts: add it';
}

async function temporalChecks({ withTemporal }: Call): Promise<readonly Check[]> {
  let faults: Readonly<Record<string, string>> = {};
  const reached = await check('temporal', async () => {
    faults = await withTemporal(faultsOfTemporal);
    return '';
  });
  const others = Object.entries(faults).map(([name, fault]) => check(name, async () => fault));
  return [reached, ...(await Promise.all(others))];
}

async function bankFault({ SANDBOX_BANK_URL: url }: Environment): Promise<string> {
  if (!url) return '(SANDBOX_BANK_URL is not set here)';
  const signal = AbortSignal.timeout(bankLimitMs);
  const { status } = await fetch(`${url}/health`, { signal }).catch(() => ({ status: 0 }));
  return status === 200 ? '' : `${url} does not answer: check the network path, then ask the bank`;
}

async function certificateFault(env: Environment): Promise<string> {
  const named = Object.entries(env).filter(
    ([name, value]) => value !== '' && /_(CERT|CERTIFICATE|CA)(_FILE)?$/.test(name),
  );
  if (named.length === 0) return '(none is configured here)';
  const faults: string[] = [];
  for (const [name, value = ''] of named) {
    const fault = await endFault(value).catch(
      (error: unknown) => `cannot be read, expected PEM or the path of a file: ${String(error)}`,
    );
    if (fault !== '') faults.push(`${name} ${fault}`);
  }
  return faults.join('; ');
}

async function endFault(value: string): Promise<string> {
  const text = value.startsWith('-----') ? value : await readFile(value, 'utf8');
  const endMs = Date.parse(new X509Certificate(text).validTo);
  const days = Math.floor((endMs - Date.now()) / 86_400_000);
  if (days >= certificateDays) return '';
  return `${days < 0 ? `expired at ${new Date(endMs).toISOString()}` : `expires in ${days} days`}: replace it`;
}

async function diskFault(directory: string | undefined): Promise<string> {
  if (directory === undefined) return '(there is no data directory here)';
  const { bavail, bsize } = await statfs(directory);
  const isFull = bavail * bsize < leastFreeBytes;
  return isFull ? `less than 2 GiB is free for ${directory}: free some space` : '';
}
