import { parseRate } from '../../src/domain/fx.js';
import type { AcceptedAmounts } from '../../src/domain/ledger.js';

/** 1,000.00 USD at a mid rate of 0.86, with one cent that flooring has left over. */
export const amounts: AcceptedAmounts = {
  sourceCurrency: 'USD',
  destinationCurrency: 'EUR',
  sourceMinor: 100_000n,
  feeMinor: 430n,
  netMinor: 99_570n,
  receiveMinor: 85_201n,
  midValueMinor: 85_630n,
  rate: parseRate('0.8557'),
};
