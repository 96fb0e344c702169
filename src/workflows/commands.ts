import { CancellationScope, condition, setHandler } from '@temporalio/workflow';
import {
  customerName,
  faultOf,
  type OperatorCommand,
  type OperatorRequest,
  type OperatorResult,
} from '../domain/operator.js';
import type { AttentionReason } from '../domain/payout.js';
import {
  approveUpdate,
  cancelUpdate,
  extendDeadlineUpdate,
  failAndReleaseUpdate,
  markSettledUpdate,
  type OperatorArgs,
  retryNowUpdate,
} from './messages.js';

/** A command that waits for the main loop, the one place that runs activities. */
export type Command = {
  readonly request: OperatorRequest;
  result: OperatorResult | undefined;
};

/** The reason the payout is parked for; undefined while nobody has looked at the row yet. */
type Attention = () => AttentionReason | null | undefined;

/**
 * Takes the updates of operators and customers. The handlers only enqueue and wait; their
 * validators look at the form and at what is in memory.
 */
export function takeCommands(commands: Command[], attention: Attention): void {
  const ask = async (command: OperatorCommand, args: OperatorArgs): Promise<OperatorResult> => {
    const asked: Command = { request: requestOf(command, args), result: undefined };
    commands.push(asked);
    // A cancel request that came too late must not take the answers from those who ask later.
    await CancellationScope.nonCancellable(() => condition(() => asked.result !== undefined));
    return asked.result ?? { outcome: 'refused', detail: 'No answer.', action: null };
  };
  const check = (command: OperatorCommand, args: OperatorArgs): void => {
    // Before the row was read nobody knows whether it is parked; the activity will.
    const fault = faultOf(requestOf(command, args), attention(), new Date());
    if (fault !== undefined) throw new Error(fault);
  };
  const retryNow = { kind: 'retryNow' } as const;
  setHandler(retryNowUpdate, (args) => ask(retryNow, args), {
    validator: (args) => check(retryNow, args),
    description: 'Ask the rail again and go on from what it says: {operator, reason}.',
  });
  setHandler(markSettledUpdate, (args) => ask(settle(args), args), {
    validator: (args) => check(settle(args), args),
    description: 'The rail has paid, says the evidence: {operator, reason, evidence}.',
  });
  setHandler(failAndReleaseUpdate, (args) => ask(release(args), args), {
    validator: (args) => check(release(args), args),
    description:
      'Void the key at the rail and give the money back: {operator, reason, statementDate?}.',
  });
  setHandler(extendDeadlineUpdate, (args) => ask(extend(args), args), {
    validator: (args) => check(extend(args), args),
    description: 'Wait for the rail until then: {operator, reason, until}.',
  });
  setHandler(approveUpdate, (args) => ask(approve(args), args), {
    validator: (args) => check(approve(args), args),
    description: "Carry out another person's proposal: {operator, reason, proposal}.",
  });
  const cancel = { kind: 'cancel' } as const;
  setHandler(cancelUpdate, (args?: OperatorArgs) => ask(cancel, args ?? customer), {
    validator: (args?: OperatorArgs) => check(cancel, args ?? customer),
    description: 'Cancel for the customer; refused once the rail has it: {operator, reason}.',
  });
  // The cancel button of the Temporal UI is a customer's wish as well.
  CancellationScope.current().cancelRequested.catch(() => {
    commands.push({ request: requestOf(cancel, cancelButton), result: undefined });
  });
}

/** What the API sends in a customer's name; it is in the payout's history and needs no audit line. */
const customer: OperatorArgs = { operator: customerName, reason: 'canceled' };

const cancelButton: OperatorArgs = { operator: 'temporal-ui', reason: 'the cancel button' };

/** Whatever was typed into the UI: what is missing is empty, and refused by the validator. */
function requestOf(command: OperatorCommand, args: Partial<OperatorArgs> | undefined) {
  return { command, operator: textOf(args?.operator), reason: textOf(args?.reason) };
}

function settle(args: { readonly evidence?: string } | undefined): OperatorCommand {
  return { kind: 'markSettled', evidence: textOf(args?.evidence) };
}

function release(args: { readonly statementDate?: string } | undefined): OperatorCommand {
  return { kind: 'failAndRelease', statementDate: args?.statementDate ?? null };
}

function extend(args: { readonly until?: string } | undefined): OperatorCommand {
  return { kind: 'extendDeadline', until: textOf(args?.until) };
}

function approve(args: { readonly proposal?: string } | undefined): OperatorCommand {
  return { kind: 'approve', proposal: textOf(args?.proposal) };
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
