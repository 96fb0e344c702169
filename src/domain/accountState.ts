import { type Refusal, refuse } from './refusal.js';

/** A frozen account cannot send until it is reopened. A closed account can never send again. */
export type AccountState = 'open' | 'frozen' | 'closed';

/** Refuses payouts of an account that is not open. A closed account has no payouts left to continue. */
export function refuseState(state: AccountState): Refusal | undefined {
  if (state === 'open') return undefined;
  const rest = state === 'frozen' ? 'Accepted payouts continue.' : 'Its API keys can only read.';
  const detail = `The account is ${state} and cannot send payouts. ${rest} Contact the operator of the service.`;
  return refuse(`account_${state}`, { expected: 'an open account', received: state, detail });
}
