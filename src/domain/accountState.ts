import { type Refusal, refuse } from './refusal.js';

/** A frozen account sends nothing until it is open again; one that is closed never does. */
export type AccountState = 'open' | 'frozen' | 'closed';

/** Why an account may not send money. What was accepted before goes on. */
export function refuseState(state: AccountState): Refusal | undefined {
  if (state === 'open') return undefined;
  const hint = 'Contact the operator of the service. Payouts that were accepted before go on.';
  return refuse(`account_${state}`, { expected: 'an open account', received: state, hint });
}
