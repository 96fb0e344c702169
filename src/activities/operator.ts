import { type Database, type Sql, transaction } from '../db/client.js';
import { findAction, findOpenProposal, recordAction } from '../db/operatorActions.js';
import { type LockedPayout, lockPayouts, unparkPayout } from '../db/payouts.js';
import { currentRates, midOf } from '../db/rates.js';
import { convertFloor } from '../domain/fx.js';
import {
  customerName,
  movesMoney,
  type OperatorCommand,
  type OperatorRequest,
  type OperatorResult,
} from '../domain/operator.js';
import { type FactRules, railKey } from '../domain/payout.js';
import type { Rails } from '../rails/registry.js';
import { applyFacts } from './facts.js';
import { notYet } from './failure.js';
import { judge, type Verdict } from './judgement.js';

import { type PayoutStep, stepOf } from './step.js';
import { findRail } from './submission.js';

export type OperatorDeps = {
  readonly database: Database;
  readonly rails: Rails;
  readonly rateMaximumAgeMs: number;
  /** Above this sum, in euro cents, a second person has to approve what moves money. */
  readonly approvalAboveMinor: bigint;
  readonly factRules: FactRules;
};

export type OperateInput = {
  readonly driver: string;
  readonly id: string;
  readonly request: OperatorRequest;
  /** The id of the audit line: a repeated attempt finds what the first one did. */
  readonly action: string;
};

export type Operated = {
  readonly steps: readonly PayoutStep[];
  readonly result: OperatorResult;
};

/** The activity that carries out what a person asks for: at the rail first, then in the ledger. */
export function operatorActivities(deps: OperatorDeps) {
  const { database } = deps;
  return {
    operatePayout: async ({ driver, id, request, action }: OperateInput): Promise<Operated> => {
      const [row] = await lockPayouts(database, driver, [id]);
      if (row === undefined)
        return { steps: [], result: refused('Another driver has the payout.') };
      if (row.attentionReason === null && request.command.kind !== 'cancel') {
        return { steps: [stepOf(row)], result: refused('The payout does not need a person.') };
      }
      const earlier = await findAction(database, action);
      if (earlier !== undefined) {
        const { outcome, detail } = earlier;
        return { steps: [stepOf(row)], result: { outcome, detail, action } };
      }
      const plan = await planOf(deps, row, request);
      const verdict = plan.kind === 'refused' ? plan.verdict : await verdictOf(deps, row, plan);
      return transaction(database, (sql) =>
        write(sql, deps.factRules, { driver, row, request, plan, verdict, action }),
      );
    },
  };
}

/** What is to be carried out: the command itself, or the one of the proposal it approves. */
type Plan =
  | {
      readonly kind: 'act' | 'propose';
      readonly command: OperatorCommand;
      readonly approves: string | null;
    }
  | { readonly kind: 'refused'; readonly verdict: Verdict; readonly approves: null };

async function planOf(
  deps: OperatorDeps,
  row: LockedPayout,
  { operator, command }: OperatorRequest,
): Promise<Plan> {
  if (command.kind !== 'approve') {
    const kind = (await needsApproval(deps, row, command)) ? 'propose' : 'act';
    return { kind, command, approves: null };
  }
  const proposal = await findOpenProposal(deps.database, row.id, command.proposal);
  const refuse = (detail: string): Plan => ({
    kind: 'refused',
    verdict: { outcome: 'refused', detail },
    approves: null,
  });
  if (proposal === undefined)
    return refuse(`${command.proposal} is no open proposal of ${row.id}.`);
  if (normalised(proposal.operator) === normalised(operator)) {
    return refuse(`${proposal.operator} has proposed this; another person has to approve it.`);
  }
  return { kind: 'act', command: proposal.command, approves: proposal.id };
}

/** A sum that cannot be compared, because a rate is missing, is taken for a large one. */
async function needsApproval(
  deps: OperatorDeps,
  row: LockedPayout,
  command: OperatorCommand,
): Promise<boolean> {
  if (!movesMoney(command, row) || row.sourceCurrency === null || row.sourceMinor === null) {
    return false;
  }
  const rates = await currentRates(deps.database, deps.rateMaximumAgeMs);
  const mid = midOf(rates, row.sourceCurrency, 'EUR');
  if (mid === undefined) return true;
  return convertFloor(row.sourceMinor, row.sourceCurrency, 'EUR', mid) > deps.approvalAboveMinor;
}

async function verdictOf(
  deps: OperatorDeps,
  row: LockedPayout,
  plan: Exclude<Plan, { kind: 'refused' }>,
): Promise<Verdict> {
  if (plan.kind === 'propose') {
    const detail =
      'Proposed; another person carries it out with approve and the id of this action.';
    return { outcome: 'proposed', detail };
  }
  const rail = row.rail === null ? undefined : findRail(deps.rails, row.rail);
  return judge(deps.database, plan.command, row, rail, railKey(row.id));
}

type Written = {
  readonly driver: string;
  readonly row: LockedPayout;
  readonly request: OperatorRequest;
  readonly plan: Plan;
  readonly verdict: Verdict;
  readonly action: string;
};

/** The facts, the release from a person's hands and the audit line, in one transaction. */
async function write(sql: Sql, rules: FactRules, written: Written): Promise<Operated> {
  const { driver, row, request, plan, verdict, action } = written;
  const { id } = row;
  const [now] = await lockPayouts(sql, driver, [id]);
  if (now === undefined) return { steps: [], result: refused('Another driver has the payout.') };
  if (verdict.ifUnsubmitted === true && now.submitStartedAt !== null) {
    throw notYet('The submission began meanwhile; the rail has to be asked.');
  }
  if (verdict.unparks === true && now.attentionDetail !== row.attentionDetail) {
    throw notYet('Something was added to the case meanwhile; it is judged again.');
  }
  // First out of the person's hands: a fact that needs a person again parks it anew.
  if (verdict.unparks === true) await unparkPayout(sql, id, verdict.settleBy ?? null);
  if (verdict.fact !== undefined) {
    await applyFacts(sql, rules, driver, [id], new Map([[id, verdict.fact]]));
  }
  const steps = (await lockPayouts(sql, driver, [id])).map(stepOf);
  const { outcome, detail } = reportOf(verdict, steps[0]);
  const isAudited = request.operator !== customerName;
  if (isAudited) {
    await recordAction(sql, {
      id: action,
      payoutId: id,
      operator: request.operator.trim(),
      reason: request.reason,
      command: request.command,
      outcome,
      detail,
      approves: plan.approves,
    });
  }
  return { steps, result: { outcome, detail, action: isAudited ? action : null } };
}

/** What the person is told: what the row says now, whatever was expected of it. */
function reportOf(
  verdict: Verdict,
  step: PayoutStep | undefined,
): Pick<OperatorResult, 'outcome' | 'detail'> {
  const again = verdict.unparks === true ? step?.attention : undefined;
  const needs = again ? ` It needs a person again: ${again.detail}` : '';
  if (verdict.ends !== undefined && step?.status !== verdict.ends) {
    return { outcome: 'refused', detail: `The payout is ${step?.status}.${needs}` };
  }
  return { outcome: verdict.outcome, detail: `${verdict.detail}${needs}` };
}

/** Two spellings of one name are one person; who it really is, nobody here can check. */
function normalised(name: string): string {
  return name.normalize('NFKC').trim().toLowerCase();
}

function refused(detail: string): OperatorResult {
  return { outcome: 'refused', detail, action: null };
}
