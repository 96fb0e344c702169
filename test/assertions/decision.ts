import {
  type Acceptance,
  fundInOrder,
  type PayoutRequest,
  type PriceFacts,
  priceOf,
} from '../../src/domain/acceptance.js';
import { isRefusal, type Refusal } from '../../src/domain/refusal.js';

/** All inputs of the decision on a single payout. */
export type Facts = PriceFacts & { readonly availableOf: (currency: string) => bigint };

/** Runs both steps of the decision, pricing and funding, for a single payout. */
export function decide(request: PayoutRequest, facts: Facts): Acceptance | Refusal {
  const priced = priceOf(request, facts);
  if (isRefusal(priced)) return priced;
  const available = new Map([[priced.sourceCurrency, facts.availableOf(priced.sourceCurrency)]]);
  const funds = { state: 'open', available, limitUses: new Map(), payeeDelays: [] } as const;
  const [decided] = fundInOrder([{ id: 'po_1', request, facts, priced }], funds);
  if (decided === undefined) throw new Error('The payout was not decided.');
  return decided;
}
