import type { SignalDefinition } from '@temporalio/common';
import { CancellationScope, condition, setHandler } from '@temporalio/workflow';
import { type ActorKind, actionId, type OperatorResult, unexecuted } from '../domain/operator.js';
import { cancelUpdate, operateUpdate } from './messages.js';

/** A command that waits for the main function, which alone runs activities. */
export type Command = {
  readonly actor: ActorKind;
  /** The id of an operator's request. Customers and the cancel button have none: they can only cancel. */
  readonly request: string | undefined;
  result: OperatorResult | undefined;
};

/** Receives a signal that carries no data: each one raises the flag, which the workflow lowers. */
export function flagOf(signal: SignalDefinition, description: string) {
  const flag = { isUp: false };
  const raise = () => {
    flag.isUp = true;
  };
  setHandler(signal, raise, { description });
  return flag;
}

/**
 * Receives the updates of operators and customers. The handlers only enqueue commands and wait. An
 * update that a validator rejects does not enter the history, so the validators reject free text.
 */
export function receiveCommands(commands: Command[]): void {
  const execute = async (actor: ActorKind, request?: string): Promise<OperatorResult> => {
    const command: Command = { actor, request, result: undefined };
    commands.push(command);
    // A cancellation of the workflow must not cancel the answers to later commands.
    await CancellationScope.nonCancellable(() => condition(() => command.result !== undefined));
    return command.result ?? unexecuted('No answer.');
  };
  setHandler(operateUpdate, (request) => execute('operator', request), {
    validator: (...args: readonly unknown[]) => {
      const [id] = args;
      if (args.length === 1 && typeof id === 'string' && actionId.test(id)) return;
      throw new Error('expected one id of a request (op_…), as `corridor payouts` makes them');
    },
    description: 'Execute the command that an operator has sent with `corridor payouts`: "op_…".',
  });
  setHandler(cancelUpdate, () => execute('customer'), {
    validator: (...args: readonly unknown[]) => {
      if (args.every((arg) => arg === null || arg === undefined)) return;
      throw new Error('expected no argument; operators use `corridor payouts cancel`');
    },
    description: 'Cancel for the customer, without an argument; refused once the rail has it.',
  });
  // The cancel button of the Temporal UI cancels the workflow, which is handled as a command too.
  CancellationScope.current().cancelRequested.catch(() => {
    commands.push({ actor: 'temporal_ui', request: undefined, result: undefined });
  });
}
