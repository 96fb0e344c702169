import { CancellationScope, condition, setHandler } from '@temporalio/workflow';
import type { ActorKind, OperatorResult } from '../domain/operator.js';
import { cancelUpdate, operateUpdate } from './messages.js';

/** A command that waits for the main loop, the one place that runs activities. */
export type Command = {
  readonly actor: ActorKind;
  /** The id of an operator's request; whoever else asks can only cancel. */
  readonly request: string | undefined;
  result: OperatorResult | undefined;
};

const requestId = /^op_[0-9a-z]{26}$/;

/**
 * Takes the updates of operators and customers. The handlers only enqueue and wait. What a
 * validator refuses enters no history, so none of them lets any text pass.
 */
export function takeCommands(commands: Command[]): void {
  const ask = async (actor: ActorKind, request?: string): Promise<OperatorResult> => {
    const asked: Command = { actor, request, result: undefined };
    commands.push(asked);
    // A cancel request that came too late must not take the answers from those who ask later.
    await CancellationScope.nonCancellable(() => condition(() => asked.result !== undefined));
    return asked.result ?? { outcome: 'refused', detail: 'No answer.', action: null };
  };
  setHandler(operateUpdate, (request) => ask('operator', request), {
    validator: (...args: readonly unknown[]) => {
      const [id] = args;
      if (args.length === 1 && typeof id === 'string' && requestId.test(id)) return;
      throw new Error('expected one id of a request (op_…), as `corridor payouts` makes them');
    },
    description: 'Carry out what an operator has asked with `corridor payouts`: "op_…".',
  });
  setHandler(cancelUpdate, () => ask('customer'), {
    validator: (...args: readonly unknown[]) => {
      if (args.every((arg) => arg === null || arg === undefined)) return;
      throw new Error('expected no argument; operators use `corridor payouts cancel`');
    },
    description: 'Cancel for the customer, without an argument; refused once the rail has it.',
  });
  // The cancel button of the Temporal UI is a customer's wish as well.
  CancellationScope.current().cancelRequested.catch(() => {
    commands.push({ actor: 'temporal_ui', request: undefined, result: undefined });
  });
}
