import { type Refusal, refuse } from './refusal.js';

/** A frozen account sends nothing until it is open again; one that is closed never does. */
export type AccountState = 'open' | 'frozen' | 'closed';

/** Why an account may not send money. Of one that is closed nothing is left to go on. */
export function refuseState(state: AccountState): Refusal | undefined {
  if (state === 'open') return undefined;
  const goesOn = state === 'frozen' ? ' Payouts that were accepted before go on.' : '';
  const hint = `Contact the operator of the service.${goesOn}`;
  return refuse(`account_${state}`, { expected: 'an open account', received: state, hint });
}
