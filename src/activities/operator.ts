import { type Sql, transaction } from '../db/client.js';
import { findAction, findRequest, openProposals, recordAction } from '../db/operatorActions.js';
import {
  type LockedPayout,
  lockPayouts,
  makeDue,
  readPayouts,
  unparkPayout,
} from '../db/payouts.js';
import { currentRates, midOf } from '../db/rates.js';
import { commandStateOf, refusalOf } from '../domain/commandRules.js';
import type { FactRules } from '../domain/factEffect.js';
import { convertFloor } from '../domain/fx.js';
import {
  type ActorKind,
  faultOf,
  mayApprove,
  movesMoney,
  needsApproval,
  type OperatorCommand,
  type OperatorRequest,
  type OperatorResult,
  unexecuted,
} from '../domain/operator.js';
import { hasConflictingReports } from '../domain/payout.js';
import { applyFacts } from './applyFacts.js';
import { evaluateCorrection, postCorrection, suspenseFault } from './correction.js';
import type { ActivityDeps, RailDeps } from './deps.js';
import { retryLater, withHeartbeat } from './failure.js';
import { awaitsItsBatch, type Decision, evaluate, togetherOnly } from './operatorDecision.js';
import { type PayoutSnapshot, park, snapshotOf } from './snapshot.js';
import { findRail } from './submission.js';

type OperatorDeps = RailDeps & Pick<ActivityDeps, 'rateMaximumAgeMs' | 'approvalAboveMinor'>;

export type OperateInput = {
  readonly driver: string;
  readonly id: string;
  readonly actor: ActorKind;
  /**
   * The id of the audit line, by which a repeated attempt finds the result of the first one. An
   * operator's request has the same id; its text stays in the database.
   */
  readonly action: string;
};

export type CommandOutcome = {
  readonly steps: readonly PayoutSnapshot[];
  readonly result: OperatorResult;
};

/** The activity that executes a command on a payout: first at the rail, then in the ledger. */
export function operatorActivities(deps: OperatorDeps) {
  return {
    executeCommand: (input: OperateInput): Promise<CommandOutcome> =>
      withHeartbeat(async () => {
        const outcome = await operate(deps, input);
        // Always: an earlier attempt may have committed events and then lost its result.
        deps.deliverer.begin([{ id: input.id, hasPendingDeliveries: true }]);
        return outcome;
      }),
  };
}

async function operate(deps: OperatorDeps, input: OperateInput): Promise<CommandOutcome> {
  const { database } = deps;
  const { driver, id, actor, action } = input;
  const row = await readCase(deps, driver, id);
  const snapshots = row === undefined ? [] : [snapshotOf(row)];
  // A repeated request gets its first answer: the payout has changed since, so a new decision may differ.
  const earlier = await answerBefore(database, action);
  if (earlier !== undefined) return { steps: snapshots, result: earlier };
  if (row === undefined) return { steps: snapshots, result: unexecuted(otherWorkflow) };
  const request =
    actor === 'operator' ? await findRequest(database, id, action) : implicitRequest(actor, row);
  if (request === undefined)
    return { steps: snapshots, result: await withoutRequest(database, input) };
  const plan = await planOf(deps, row, actor, request);
  const decision = await decisionOf(deps, row, plan);
  return transaction(database, (sql) =>
    write(sql, deps.factRules, { ...input, row, request, plan, decision }),
  );
}

/**
 * Reads the payout. If the rail's reports conflict, or it reports on an undecided payout, first applies those in
 * the inbox, which are then only added to the findings: after a command has closed the case, they would move money.
 */
async function readCase({ database, factRules }: OperatorDeps, driver: string, id: string) {
  const [row] = await readPayouts(database, driver, [id]);
  if (row === undefined || !hasUnreadReports(row)) return row;
  await transaction(database, (sql) => applyFacts(sql, factRules, { driver, ids: [id] }));
  return (await readPayouts(database, driver, [id]))[0];
}

const hasUnreadReports = ({ status, attentionReason, hasUnprocessedEvents }: LockedPayout) =>
  hasUnprocessedEvents && (status === 'pending' || hasConflictingReports(attentionReason));

/** Returns the recorded answer to a request, or undefined if it was not executed. */
async function answerBefore(sql: Sql, action: string): Promise<OperatorResult | undefined> {
  const earlier = await findAction(sql, action);
  return earlier && { outcome: earlier.outcome, detail: earlier.detail, action };
}

/** While this attempt was suspended, another may have executed the request before it became too old. */
async function withoutRequest(sql: Sql, { id, action }: OperateInput): Promise<OperatorResult> {
  const detail = `There is no request ${action} for ${id} that may be executed now.`;
  return (await answerBefore(sql, action)) ?? unexecuted(detail);
}

const otherWorkflow = 'Another workflow is processing the payout. Send the command again.';

/**
 * The request behind a cancellation that no operator requested. A customer's must be recorded by the
 * API, because anyone who can reach Temporal can send the same message.
 */
function implicitRequest(actor: ActorKind, row: LockedPayout): OperatorRequest | undefined {
  const command = { kind: 'cancel' } as const;
  if (actor !== 'customer')
    return { operator: 'temporal-ui', reason: 'the cancel button', command };
  if (!row.hasCancelRequest) return undefined;
  return { operator: row.accountId, reason: 'the API', command };
}

/** The command to execute: the requested one, or that of the proposal it approves. */
type Plan =
  | {
      readonly kind: 'act' | 'propose';
      readonly command: OperatorCommand;
      readonly approves: string | null;
    }
  | { readonly kind: 'refused'; readonly detail: string; readonly approves: null };

async function planOf(
  deps: OperatorDeps,
  row: LockedPayout,
  actor: ActorKind,
  { operator, command }: OperatorRequest,
): Promise<Plan> {
  const refuse = (detail: string): Plan => ({ kind: 'refused', detail, approves: null });
  if (actor === 'temporal_ui') {
    return refuse('It is unknown who pressed the button: use corridor payouts cancel.');
  }
  const proposal =
    command.kind === 'approve'
      ? (await openProposals(deps.database, [row.id])).find(({ id }) => id === command.proposal)
      : undefined;
  if (command.kind === 'approve' && proposal === undefined) {
    return refuse(`There is no open proposal ${command.proposal} for ${row.id}.`);
  }
  const planned = proposal?.command ?? command;
  // The command line checks the form too, but an operator with the database login can bypass it.
  const refusal = faultOf(planned, new Date()) ?? refusalOf(planned.kind, commandStateOf(row));
  if (refusal !== undefined) return refuse(refusal);
  if (proposal === undefined) {
    const euroCents = await euroCentsOf(deps, row, command);
    const isProposed = needsApproval(command, row, euroCents, deps.approvalAboveMinor);
    return { kind: isProposed ? 'propose' : 'act', command, approves: null };
  }
  return mayApprove(proposal, operator)
    ? { kind: 'act', command: planned, approves: proposal.id }
    : refuse('You proposed this yourself: another operator has to approve it.');
}

/** The payout's value in euro cents: 0 if the command moves no money, undefined if there is no rate. */
async function euroCentsOf(
  { database, rateMaximumAgeMs }: OperatorDeps,
  row: LockedPayout,
  command: OperatorCommand,
): Promise<bigint | undefined> {
  if (row.sourceMinor === null || !movesMoney(command, row)) return 0n;
  const rates = await currentRates(database, rateMaximumAgeMs[row.mode]);
  const mid = midOf(rates, row.sourceCurrency, 'EUR');
  return mid && convertFloor(row.sourceMinor, row.sourceCurrency, 'EUR', mid);
}

async function decisionOf(deps: OperatorDeps, row: LockedPayout, plan: Plan): Promise<Decision> {
  if (plan.kind === 'refused') return { outcome: 'refused', detail: plan.detail };
  const { command, kind } = plan;
  const proposed = 'Another operator has to approve it.';
  if (command.kind === 'correct') {
    const decision = await evaluateCorrection(deps.database, row, command.correction);
    if (kind === 'act' || decision.outcome === 'refused') return decision;
    return { outcome: 'proposed', detail: `${decision.detail} ${proposed}` };
  }
  if (kind === 'propose') {
    const isTogether = await awaitsItsBatch(deps.database, row);
    const fault = isTogether ? togetherOnly : await suspenseFault(deps.database, row);
    return fault === undefined
      ? { outcome: 'proposed', detail: proposed }
      : { outcome: 'refused', detail: fault };
  }
  const rail = row.rail === null ? undefined : findRail(deps.rails, row.rail);
  return evaluate(deps, command, row, rail);
}

type CommandRecord = OperateInput & {
  readonly row: LockedPayout;
  readonly request: OperatorRequest;
  readonly plan: Plan;
  readonly decision: Decision;
};

/** Unparks the payout, applies the fact and writes the audit line, in one transaction. */
async function write(sql: Sql, rules: FactRules, written: CommandRecord): Promise<CommandOutcome> {
  const { driver, row, actor, request, plan, action } = written;
  const { id } = row;
  // Read again once locked: a statement that waits for the lock sees the payout as it is then, but the inbox as it was.
  await lockPayouts(sql, driver, [id]);
  const [now] = await lockPayouts(sql, driver, [id]);
  if (now === undefined) return { steps: [], result: unexecuted(otherWorkflow) };
  // Calling the rail may have taken long: by now the request may be too old, or its operator revoked.
  if (actor === 'operator' && (await findRequest(sql, id, action)) === undefined) {
    return { steps: [snapshotOf(now)], result: await withoutRequest(sql, written) };
  }
  const decision = await underLock(sql, now, plan, written.decision);
  if (decision.unparks === true && (hasUnreadReports(now) || !isSameCase(now, row))) {
    throw retryLater(
      'The payout was sent or its case changed meanwhile; the command is evaluated again.',
    );
  }
  // Unparked first: a fact that needs an operator parks the payout again.
  if (decision.unparks === true) await unparkPayout(sql, id, decision.settleBy ?? null);
  if (decision.fact !== undefined) {
    await applyFacts(sql, rules, { driver, ids: [id] }, new Map([[id, decision.fact]]));
  }
  const [after] = await lockPayouts(sql, driver, [id]);
  const { outcome, detail } = reportOf(decision, after && snapshotOf(after));
  await recordAction(sql, {
    ...request,
    id: action,
    subjectId: id,
    actorKind: actor,
    outcome,
    detail,
    approves: plan.approves,
  });
  await postCorrection(sql, now, decision, action);
  const corrected = (await lockPayouts(sql, driver, [id])).map(snapshotOf);
  const steps = await park(sql, corrected, () => decision.parks);
  // Events that arrived meanwhile are the workflow's next step. If it dies, the sweep wakes it.
  if (steps.some(({ hasUnprocessedEvents }) => hasUnprocessedEvents)) await makeDue(sql, [id]);
  return { steps, result: { outcome, detail, action } };
}

/** Whether, since the row was read, the payout was not accepted or sent again, and its case has not changed. */
function isSameCase(now: LockedPayout, then: LockedPayout): boolean {
  return (
    now.rail === then.rail &&
    now.attentionDetail === then.attentionDetail &&
    now.attentionAt?.getTime() === then.attentionAt?.getTime() &&
    now.lastSentAt?.getTime() === then.lastSentAt?.getTime()
  );
}

/** Evaluates corrections again, as they depend on the books; money in suspense prevents unparking. */
async function underLock(
  sql: Sql,
  row: LockedPayout,
  plan: Plan,
  decision: Decision,
): Promise<Decision> {
  if (plan.kind === 'act' && plan.command.kind === 'correct') {
    return evaluateCorrection(sql, row, plan.command.correction);
  }
  const fault = decision.unparks === true ? await suspenseFault(sql, row) : undefined;
  return fault === undefined ? decision : { outcome: 'refused', detail: fault };
}

/** Returns the result shown to the operator. It follows the row as it is now, not as expected. */
function reportOf(
  decision: Decision,
  snapshot: PayoutSnapshot | undefined,
): Pick<OperatorResult, 'outcome' | 'detail'> {
  const again = decision.unparks === true ? snapshot?.attention : undefined;
  const needs = again ? ` It needs an operator again: ${again.detail}` : '';
  if (decision.expectedStatus !== undefined && snapshot?.status !== decision.expectedStatus) {
    return { outcome: 'refused', detail: `The payout is ${snapshot?.status}.${needs}` };
  }
  return { outcome: decision.outcome, detail: `${decision.detail}${needs}` };
}
