import { type Client, WorkflowUpdateFailedError } from '@temporalio/client';
import { takeOver } from '../db/chunks.js';
import type { Database } from '../db/client.js';
import { listActions } from '../db/operatorActions.js';
import { findPayoutById, listParked, type PayoutRow } from '../db/payouts.js';
import { formatMinor } from '../domain/money.js';
import type { OperatorResult } from '../domain/operator.js';
import { attentionReasons } from '../domain/payout.js';
import { askPayout } from '../temporal/wakePayout.js';
import {
  approveUpdate,
  cancelUpdate,
  extendDeadlineUpdate,
  failAndReleaseUpdate,
  markSettledUpdate,
  retryNowUpdate,
} from '../workflows/messages.js';
import { UsageError } from './usage.js';

/** Every payout that needs a person, longest waiting first. */
export async function listAttention(database: Database): Promise<void> {
  const parked = await listParked(database);
  if (parked.length === 0) console.log('No payout needs a person.');
  for (const row of parked) {
    console.log(
      `${row.id}  ${row.status}  ${row.attentionReason}  since ${row.attentionAt?.toISOString()}`,
    );
    console.log(`  ${amounts(row)}; ${row.attentionDetail}`);
  }
}

/** One payout with everything that happened to it and who did what. */
export async function showPayout(database: Database, id: string): Promise<void> {
  const row = await existingPayout(database, id);
  console.log(`${row.id}  ${row.status}  ${amounts(row)}`);
  for (const { at, status, reason } of row.statusHistory) {
    console.log(`  ${at}  ${status}${reason === null ? '' : `  (${reason})`}`);
  }
  if (row.attentionReason !== null) {
    console.log(`Needs a person: ${row.attentionReason}. ${attentionReasons[row.attentionReason]}`);
    console.log(`  ${row.attentionDetail}`);
  }
  for (const action of await listActions(database, id)) {
    const { createdAt, operator, command, outcome, detail, reason } = action;
    console.log(
      `  ${createdAt.toISOString()}  ${operator}: ${command.kind}, ${outcome}. ${detail}`,
    );
    console.log(`    ${action.id}, because: ${reason}`);
  }
}

export type ActionFlags = {
  readonly operator: string;
  readonly reason: string;
  readonly evidence: string | undefined;
  readonly statementDate: string | undefined;
  readonly until: string | undefined;
  readonly proposal: string | undefined;
};

/** A payout's workflow answers when the rail has; a look-up and a void take seconds. */
const actionLimitMs = 60_000;

/** Sends an operator's command to the payout's workflow. True when it was not refused. */
export async function act(
  database: Database,
  temporal: Client,
  id: string,
  verb: string,
  flags: ActionFlags,
): Promise<boolean> {
  const row = await existingPayout(database, id);
  // A payout of a batch gets a workflow of its own for this.
  await takeOver(database, id);
  const { operator, reason } = flags;
  const who = { operator, reason };
  const send = ({ name }: { readonly name: string }, args: readonly object[]) =>
    askPayout(temporal, row, { name, args }, actionLimitMs);
  const result = await dispatch().catch(rejection);
  console.log(`${result.outcome}: ${result.detail}`);
  if (result.action !== null) console.log(`Recorded as ${result.action}.`);
  return result.outcome !== 'refused';

  function dispatch(): Promise<OperatorResult> {
    switch (verb) {
      case 'retry':
      case 'retryNow':
        return send(retryNowUpdate, [who]);
      case 'settle':
      case 'markSettled':
        return send(markSettledUpdate, [{ ...who, evidence: given(flags.evidence, 'evidence') }]);
      case 'fail':
      case 'failAndRelease': {
        const { statementDate } = flags;
        const evidence = statementDate === undefined ? {} : { statementDate };
        return send(failAndReleaseUpdate, [{ ...who, ...evidence }]);
      }
      case 'extend':
      case 'extendDeadline':
        return send(extendDeadlineUpdate, [{ ...who, until: given(flags.until, 'until') }]);
      case 'approve':
        return send(approveUpdate, [{ ...who, proposal: given(flags.proposal, 'proposal') }]);
      case 'cancel':
        return send(cancelUpdate, [who]);
      default:
        throw new UsageError(`corridor payouts has no "${verb}".`);
    }
  }
}

/** What the workflow's validator says is the operator's to read; anything else is a failure. */
function rejection(error: unknown): OperatorResult {
  if (!(error instanceof WorkflowUpdateFailedError)) throw error;
  const detail = error.cause?.message ?? error.message;
  return { outcome: 'refused', detail, action: null };
}

function given(value: string | undefined, flag: string): string {
  if (value === undefined || value === '') throw new UsageError(`--${flag} is missing.`);
  return value;
}

async function existingPayout(database: Database, id: string): Promise<PayoutRow> {
  const row = await findPayoutById(database, id);
  if (row === undefined) throw new UsageError(`There is no payout ${id}.`);
  return row;
}

function amounts(row: PayoutRow): string {
  const { sourceMinor, sourceCurrency, receiveMinor, destinationCurrency } = row;
  if (sourceMinor === null || sourceCurrency === null) return 'never accepted';
  const source = `${formatMinor(sourceMinor, sourceCurrency)} ${sourceCurrency}`;
  if (receiveMinor === null || destinationCurrency === null) return source;
  return `${source} → ${formatMinor(receiveMinor, destinationCurrency)} ${destinationCurrency}`;
}
