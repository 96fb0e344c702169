import { join } from 'node:path';
import { z } from 'zod';
import { readJson } from '../src/cli/jsonFile.js';
import { UsageError } from '../src/cli/usage.js';
import { connectDatabase, type Database, exactlyOne } from '../src/db/client.js';
import { findPayoutById, type PayoutRow, parkPayouts } from '../src/db/payouts.js';
import { type AttentionReason, attentionReasons, type PayoutStatus } from '../src/domain/payout.js';
import { connectTemporal } from '../src/temporal/client.js';
import { wakePayout } from '../src/temporal/workflowCalls.js';
import type { CallbackEvent } from './bank/books.js';
import { startCallbacks } from './bank/callbacks.js';
import { randomId } from './bank/clearing.js';
import { caller } from './demo/caller.js';

/** How to make a payout need an operator: what to order from the bank, and what to do then. */
type Kind = {
  readonly reference: string;
  /** The status to wait for before the next step; by default any but `pending`. */
  readonly until?: PayoutStatus;
  /** The false report that the bank then sends. */
  readonly report?: Pick<CallbackEvent, 'type' | 'code'> & { readonly percent: bigint };
  /** How long it takes until the payout needs an operator; by default no time. */
  readonly wait?: { readonly rehearsal: string; readonly usual: string };
};

const kinds: Readonly<Record<AttentionReason, Kind>> = {
  amount_mismatch: { reference: 'simulate: wrong amount' },
  contradiction: {
    reference: 'Rehearsal',
    until: 'settled',
    report: { type: 'rejected', code: 'AC04', percent: 100n },
  },
  paid_after_release: {
    reference: 'simulate: late rejection AC04',
    until: 'failed',
    report: { type: 'settled', percent: 100n },
  },
  // The service repeats the key with increasing pauses, for half of the bank's retention time.
  outcome_unknown: {
    reference: 'simulate: timeout then nothing',
    wait: { rehearsal: '90 seconds', usual: 'a day' },
  },
  // The service polls the bank until the first look-up after the deadline.
  settle_by_passed: {
    reference: 'simulate: never settle',
    wait: { rehearsal: 'three to four minutes', usual: 'five days' },
  },
  return_short: {
    reference: 'Rehearsal',
    until: 'settled',
    report: { type: 'returned', code: 'AC04', percent: 50n },
  },
  unexpected_failure: { reference: 'simulate: never settle', until: 'sent' },
};

const names = Object.keys(kinds);
const isKind = (name: string): name is AttentionReason => names.includes(name);

const stackShape = z.object({
  ...{ api_url: z.string(), api_key: z.string(), database_url: z.string() },
  temporal_address: z.string(),
});
const secretsShape = z.object({ callbackSecret: z.string() });
const created = z.object({ id: z.string() });

/** Timeout of a step: a local bank does everything immediate in well under a second. */
const stepLimitMs = 20_000;
const pauseMs = 100;
/** A deadline further away than this means that the stack was not started with --rehearsal. */
const patienceMs = 10 * 60_000;

/** Creates a payout that needs an operator on the local stack. Prints what to do; returns the exit code. */
export async function rehearse(directory: string, kind: string): Promise<number> {
  if (!isKind(kind)) {
    if (kind !== '') throw new UsageError(`corridor rehearse expects one of ${names.join(', ')}.`);
    for (const [name, text] of Object.entries(attentionReasons)) console.log(`${name}\n  ${text}`);
    return 0;
  }
  const stack = await readJson(join(directory, 'stack.json'), stackShape);
  const secrets = await readJson(join(directory, 'secrets.json'), secretsShape);
  if (stack === undefined || secrets === undefined) {
    throw new UsageError(`No stack runs in ${directory}: first run corridor start --rehearsal.`);
  }
  const database = connectDatabase({
    ...{ url: stack.database_url, poolSize: 1, applicationName: 'corridor-cli' },
  });
  try {
    const { reference, until, report, wait } = kinds[kind];
    const id = await sendPayout(stack, reference);
    console.log(`Payout    ${id}, "${reference}"`);
    const row = await reaches(database, id, until);
    if (report !== undefined) await reportAs(stack, secrets, row, report);
    if (kind === 'unexpected_failure') await breakDown(database, stack, row);
    const isRehearsal = (row.settleBy?.getTime() ?? 0) - Date.now() < patienceMs;
    console.log(wait === undefined ? 'It needs an operator now.' : timeOf(wait, isRehearsal));
    console.log(`Next      corridor payouts list\n          corridor payouts show ${id}`);
    return 0;
  } finally {
    await database.end({ timeout: 5 });
  }
}

function timeOf({ rehearsal, usual }: NonNullable<Kind['wait']>, isRehearsal: boolean): string {
  return isRehearsal
    ? `It needs an operator after ${rehearsal}: until then corridor payouts show says what it waits for, and lists attempts while the service makes them.`
    : `It needs an operator after ${usual}. With corridor start --rehearsal that takes ${rehearsal}.`;
}

async function sendPayout(stack: z.infer<typeof stackShape>, reference: string): Promise<string> {
  const call = caller(stack.api_url, stack.api_key);
  const bank = { country: 'DE', currency: 'EUR', iban: 'DE89370400440532013000' };
  const payee = new URLSearchParams({ type: 'individual', name: 'Ada Lovelace', ...bank });
  const { id: beneficiary } = await call('POST /v1/beneficiaries', created, payee);
  const order = { source_currency: 'USD', amount: '125000', beneficiary, reference };
  return (await call('POST /v1/payouts', created, new URLSearchParams(order))).id;
}

/** Waits until the payout has this status or, without one, is no longer pending. */
async function reaches(database: Database, id: string, status?: PayoutStatus): Promise<PayoutRow> {
  const endMs = Date.now() + stepLimitMs;
  for (;;) {
    const row = exactlyOne(await findPayoutById(database, id));
    if (status === undefined ? row.status !== 'pending' : row.status === status) return row;
    if (Date.now() > endMs) throw new Error(`${id} is ${row.status}, expected ${status}.`);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

/** Sends a callback in the bank's place, because the sandbox bank never contradicts itself. */
async function reportAs(
  { api_url }: z.infer<typeof stackShape>,
  { callbackSecret: secret }: z.infer<typeof secretsShape>,
  row: PayoutRow,
  { percent, ...report }: NonNullable<Kind['report']>,
): Promise<void> {
  const event: CallbackEvent = {
    ...{ ...report, id: randomId('bev_'), key: row.id, at: new Date().toISOString() },
    amount: `${((row.receiveMinor ?? 0n) * percent) / 100n}`,
    ...{ currency: row.destinationCurrency ?? '', bank_reference: row.railReference ?? '' },
  };
  await new Promise<void>((resolve, reject) => {
    const callbacks = startCallbacks({
      url: `${api_url}/rails/sandbox/callbacks`,
      secret,
      log: (message) => reject(new Error(message)),
      onAcknowledged: async () => resolve(void callbacks.stop()),
    });
    callbacks.send([event]);
  });
}

/** Parks the payout as if a step had failed unexpectedly, because no bank can cause that. */
async function breakDown(
  database: Database,
  { temporal_address: address }: z.infer<typeof stackShape>,
  row: PayoutRow,
): Promise<void> {
  const detail = 'A rehearsal: nothing has failed.';
  await parkPayouts(database, [{ id: row.id, reason: 'unexpected_failure', detail }]);
  const temporal = connectTemporal({
    TEMPORAL_ADDRESS: address,
    TEMPORAL_NAMESPACE: 'default',
  });
  await wakePayout(temporal, row);
  await temporal.connection.close();
}
