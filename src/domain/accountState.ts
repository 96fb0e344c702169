import { type Refusal, refuse } from './refusal.js';

/** A frozen account sends nothing until it is open again; one that is closed never does. */
export type AccountState = 'open' | 'frozen' | 'closed';

/** Why an account may not send money. A closed one has no payouts left to continue. */
export function refuseState(state: AccountState): Refusal | undefined {
  if (state === 'open') return undefined;
  const rest = state === 'frozen' ? ' Payouts accepted before the freeze continue.' : '';
  const hint = `Contact the operator of the service.${rest}`;
  return refuse(`account_${state}`, { expected: 'an open account', received: state, hint });
}
