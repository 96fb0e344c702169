import { CancellationScope, condition, setHandler } from '@temporalio/workflow';
import { type ActorKind, actionId, type OperatorResult, unexecuted } from '../domain/operator.js';
import { cancelUpdate, operateUpdate } from './messages.js';

/** A command that waits for the main function, the only place that runs activities. */
export type Command = {
  readonly actor: ActorKind;
  /** The id of an operator's request; customers and the cancel button can only cancel. */
  readonly request: string | undefined;
  result: OperatorResult | undefined;
};

/**
 * Receives the updates of operators and customers. The handlers only enqueue and wait. What a
 * validator rejects enters no history, so none of them lets free text pass.
 */
export function receiveCommands(commands: Command[]): void {
  const ask = async (actor: ActorKind, request?: string): Promise<OperatorResult> => {
    const asked: Command = { actor, request, result: undefined };
    commands.push(asked);
    // A cancellation of the workflow must not cancel the answers to later commands.
    await CancellationScope.nonCancellable(() => condition(() => asked.result !== undefined));
    return asked.result ?? unexecuted('No answer.');
  };
  setHandler(operateUpdate, (request) => ask('operator', request), {
    validator: (...args: readonly unknown[]) => {
      const [id] = args;
      if (args.length === 1 && typeof id === 'string' && actionId.test(id)) return;
      throw new Error('expected one id of a request (op_…), as `corridor payouts` makes them');
    },
    description: 'Execute the command that an operator has sent with `corridor payouts`: "op_…".',
  });
  setHandler(cancelUpdate, () => ask('customer'), {
    validator: (...args: readonly unknown[]) => {
      if (args.every((arg) => arg === null || arg === undefined)) return;
      throw new Error('expected no argument; operators use `corridor payouts cancel`');
    },
    description: 'Cancel for the customer, without an argument; refused once the rail has it.',
  });
  // The cancel button of the Temporal UI asks for a cancellation as well.
  CancellationScope.current().cancelRequested.catch(() => {
    commands.push({ actor: 'temporal_ui', request: undefined, result: undefined });
  });
}
