import { findBatchById } from '../db/batches.js';
import type { Database } from '../db/client.js';
import { entriesOf } from '../db/ledger.js';
import { listActions, openProposals } from '../db/operatorActions.js';
import { type CallbackRow, callbacksOf, deliveriesOfPayout } from '../db/operatorLists.js';
import { findPayoutById, type PayoutRow, readPayouts } from '../db/payouts.js';
import { commandStateOf, type Offer, offersOf, orderText, waitOf } from '../domain/commandRules.js';
import { correctionOf } from '../domain/correction.js';
import { statedSum } from '../domain/factEffect.js';
import { parseRate } from '../domain/fx.js';
import { type PostedEntry, sumOn } from '../domain/ledger.js';
import { writtenSum } from '../domain/money.js';
import { isFinal, railKey, type StatusChange, statusHistory } from '../domain/payout.js';
import { reportFromJson } from '../domain/railReport.js';
import { sentenceOf } from '../domain/refusal.js';
import { actionLines } from './audit.js';
import { plain, printJson, wrapped } from './table.js';
import { type Call, existing, requiredId } from './usage.js';

/** Returns the commands that would be accepted for a payout now, by the same rules that decide them. */
export function offersNow(row: PayoutRow, entries: readonly PostedEntry[]): readonly Offer[] {
  return offersOf(commandStateOf(row), sumOn(entries, 'suspense', row.destinationCurrency ?? ''));
}

/** Returns the proposals that could still be executed: the books may have changed since they were made. */
export async function executableProposals(database: Database, rows: readonly PayoutRow[]) {
  const rowOf = new Map(rows.map((row) => [row.id, row]));
  const proposals = await openProposals(database, [...rowOf.keys()]);
  const kept = proposals.map(async (proposal) => {
    const { command, subjectId } = proposal;
    const row = rowOf.get(subjectId) ?? { sourceMinor: null };
    if (command.kind !== 'correct' || row.sourceMinor === null) return [proposal];
    const amounts = { ...row, rate: parseRate(row.rate) };
    const correction = correctionOf(
      command.correction,
      amounts,
      await entriesOf(database, subjectId),
    );
    return typeof correction === 'string' ? [] : [proposal];
  });
  return (await Promise.all(kept)).flat();
}

/**
 * Shows a payout with its full history, what it waits for and which commands would be accepted. The attempts in
 * progress come last, because Temporal may not answer.
 */
export async function showPayout(call: Call): Promise<void> {
  const view = await viewOf(call, requiredId('payout', call));
  // The workflow of a final payout has ended, and that of a parked one waits for a command: neither attempts anything.
  const isAtRest = isFinal(view.payout.status) || view.payout.attentionReason !== null;
  const attempts = async () => (isAtRest ? [] : attemptsOf(call, view.payout.driver));
  if (call.isJson) return printJson({ ...view, attempts: await attempts() });
  for (const line of linesOf(view)) console.log(line);
  for (const line of part('In progress', await attempts())) console.log(line);
}

type View = Awaited<ReturnType<typeof viewOf>>;

async function viewOf(call: Call, id: string) {
  const { database } = call;
  const payout = existing('payout', id, await findPayoutById(database, id));
  const { driver, status, attentionReason } = payout;
  const [[deciding = payout], entries, actions, ...rest] = await Promise.all([
    // Commands are decided by when the order may have been sent, also in a time that the database has lost.
    readPayouts(database, null, [id]),
    entriesOf(database, id),
    listActions(database, id),
    executableProposals(database, [payout]),
    callbacksOf(database, id),
    deliveriesOfPayout(database, id),
    payout.batchId === null ? undefined : findBatchById(database, payout.batchId),
  ]);
  const [proposals, callbacks, deliveries, batch] = rest;
  const ui = call.temporalUi;
  const workflow = ui === undefined ? driver : `${ui}/workflows/${encodeURIComponent(driver)}`;
  const approvals = proposals.map((one) => approvalOf(id, one.id, one.operator));
  const state = commandStateOf(deciding);
  const wait = waitOf(state) ?? null;
  const isUnsent = status === 'processing' && attentionReason === null && !state.isSubmitted;
  const paused = { waitsFor: 'Its batch is paused.', who: `corridor batches resume ${batch?.id}` };
  return {
    ...{ payout, entries, actions, callbacks, deliveries, workflow },
    isSubmitted: state.isSubmitted,
    wait: isUnsent && (batch?.pausedAt ?? null) !== null ? paused : wait,
    accepted: [...offersNow(deciding, entries), ...approvals],
  };
}

/** Returns a workflow's pending activities, or a line saying that Temporal cannot report them. */
export async function attemptsOf(
  { temporalConfig }: Pick<Call, 'temporalConfig'>,
  workflowId: string,
) {
  try {
    // Loaded lazily: only an open payout or batch needs it.
    const { pendingActivities } = await import('../temporal/pendingActivities.js');
    const lines = await pendingActivities(temporalConfig(), workflowId);
    return lines.map(plain);
  } catch (error) {
    return [plain(`Attempts unknown: ${error instanceof Error ? error.message : String(error)}`)];
  }
}

/** Returns the command with which another operator approves a proposal. */
export function approvalOf(id: string, action: string, operator: string): Offer {
  return {
    command: `corridor payouts approve ${id} --proposal ${action} --reason TEXT`,
    does: `executes what ${operator} proposed`,
  };
}

function part(name: string, lines: readonly string[]): readonly string[] {
  if (lines.length === 0) return [];
  return [`${name}:`, ...lines.map((line) => wrapped(line, '  ', '    '))];
}

function linesOf(view: View): readonly string[] {
  const { payout: row, wait, workflow } = view;
  const fact = (name: string, value: string | null) =>
    value === null ? [] : [`${name.padEnd(13)}${value}`];
  const found = row.attentionDetail === wait?.waitsFor ? null : row.attentionDetail;
  return [
    `${row.id}  ${row.status}`,
    orderText(row),
    '',
    ...(row.refusal === null ? [] : [wrapped(sentenceOf(row.refusal), 'Refused     ', '    ')]),
    ...(wait === null ? [] : [wrapped(wait.waitsFor, 'Why it waits', '    ')]),
    ...(found === null ? [] : [wrapped(found, '    ')]),
    ...fact('Who can act', wait?.who ?? null),
    ...fact('Account', `${row.accountId} (${row.mode})`),
    // A refused payout may name a beneficiary that never existed.
    ...fact('Beneficiary', `${row.beneficiaryId}${row.refusal ? '' : ' (details are encrypted)'}`),
    ...fact('Reference', row.reference),
    ...fact('Batch', row.batchId === null ? null : `${row.batchId}, item ${row.batchIndex}`),
    ...fact('Retry of', row.retryOf),
    ...fact('Our key', view.isSubmitted ? `${railKey(row.id)}  (give it to the bank)` : null),
    ...fact('Bank ref.', row.railReference),
    ...fact('Settle by', row.settleBy?.toISOString() ?? null),
    ...fact('Workflow', workflow),
    ...nextLines(view.accepted),
    '',
    ...part('History', statusHistory(row).map(changeLine)),
    ...part('At the bank', [...sendings(row), ...view.callbacks.map(callbackLine)]),
    ...part('Postings', view.entries.flatMap(entryLines)),
    ...part('Webhooks', view.deliveries.map(deliveryLine)),
    ...part(
      'Operators',
      view.actions.flatMap((action) => actionLines(action)),
    ),
  ];
}

/** Formats the next possible commands: each alone on its line, for copying, followed by what it does. */
export function nextLines(offers: readonly Offer[]): readonly string[] {
  const headings = { 'Available now:': false, 'Next, for another operator:': true };
  return Object.entries(headings).flatMap(([heading, isApproval]) => {
    const lines = offers
      .filter(({ command }) => command.startsWith('corridor payouts approve') === isApproval)
      .flatMap(({ command, does }) => [`  ${command}`, wrapped(does, '      ')]);
    return lines.length === 0 ? [] : ['', heading, ...lines];
  });
}

const changeLine = ({ at, status, reason }: StatusChange) =>
  `${at}  ${status}${reason === null ? '' : `  (${reason})`}`;

const deliveryLine = ({ event, endpointId, status, attempts }: View['deliveries'][number]) =>
  `${event} to ${endpointId}: ${status}, attempts: ${attempts}`;

function sendings({ submitStartedAt, lastSentAt, voidIntent }: PayoutRow): readonly string[] {
  if (submitStartedAt === null) return [];
  return [
    `${submitStartedAt.toISOString()}  first sent`,
    ...(lastSentAt !== null && lastSentAt > submitStartedAt
      ? [`${lastSentAt.toISOString()}  last sent, under the same key`]
      : []),
    ...(voidIntent === null ? [] : [`Void requested; if it succeeds: ${voidIntent}.`]),
  ];
}

function callbackLine({ receivedAt, report: json, outcome }: CallbackRow): string {
  const report = reportFromJson(json);
  const amount = 'amountMinor' in report ? ` ${statedSum(report)}` : '';
  const code = 'code' in report ? ` ${report.code}` : '';
  const became = outcome ?? 'not applied yet';
  return `${receivedAt.toISOString()}  bank: ${report.kind}${amount}${code} (${became})`;
}

function entryLines({ id, kind, postings }: PostedEntry): readonly string[] {
  return [
    `entry ${id}  ${kind}`,
    ...postings.map(
      ({ account, currency, amountMinor }) => `  ${account}  ${writtenSum(amountMinor, currency)}`,
    ),
  ];
}
