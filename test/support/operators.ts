import { vi } from 'vitest';
import { act } from '../../src/cli/payouts.js';
import { UsageError } from '../../src/cli/usage.js';
import { takeOver } from '../../src/db/chunks.js';
import { exactlyOne } from '../../src/db/client.js';
import { insertRequest } from '../../src/db/operatorActions.js';
import { findPayoutById } from '../../src/db/payouts.js';
import type { OperatorCommand, OperatorResult } from '../../src/domain/operator.js';
import { askPayout } from '../../src/temporal/wakePayout.js';
import { operateUpdate } from '../../src/workflows/messages.js';
import type { TestSystem } from './system.js';

/** Who acts in tests, and why. */
export const signature = { operator: 'grace', reason: 'the bank was called' } as const;

type Parts = Pick<TestSystem, 'database' | 'temporal'>;

/** Sends a command to the payout's workflow, as `corridor payouts` does. */
export async function command(
  { database, temporal }: Parts,
  id: string,
  asked: OperatorCommand,
  operator: string = signature.operator,
): Promise<OperatorResult> {
  const row = exactlyOne(await findPayoutById(database, id));
  const action = await insertRequest(database, id, { ...signature, operator, command: asked });
  await takeOver(database, id);
  return askPayout(temporal, row, { name: operateUpdate.name, args: [action] }, 20_000);
}

/** Keeps a request, and says with what the activity that carries it out is called. */
export async function requested(
  { database }: Pick<Parts, 'database'>,
  id: string,
  asked: OperatorCommand,
) {
  const action = await insertRequest(database, id, { ...signature, command: asked });
  return { driver: id, id, actor: 'operator', action } as const;
}

export type Run = {
  readonly isCarriedOut: boolean;
  /** Everything that the command line said, the message of a usage error included. */
  readonly printed: string;
  /** The id of the line, '' where there is none. */
  readonly action: string;
};

/** Runs `corridor payouts VERB ID` as grace, unless told otherwise, with the output kept. */
export async function operate(
  { database, temporal }: Parts,
  id: string,
  verb: string,
  flags: Readonly<Record<string, string>> = {},
): Promise<Run> {
  const said = vi.spyOn(console, 'log').mockReturnValue();
  const run = (isCarriedOut: boolean, printed: string): Run => {
    const action = /Recorded as (op_\w+)/.exec(printed)?.[1] ?? '';
    return { isCarriedOut, printed, action };
  };
  try {
    const isCarriedOut = await act({ database, temporal }, id, verb, { ...signature, ...flags });
    return run(isCarriedOut, said.mock.calls.join('\n'));
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return run(false, error.message);
  } finally {
    said.mockRestore();
  }
}
