import { createHmac } from 'node:crypto';
import type { CallbackEvent } from '../../sandbox/bank/books.js';
import type { PayoutRow } from '../../src/db/payouts.js';
import type { TestSystem } from '../servers/system.js';

/** An event as the sandbox bank sends it, reduced to the fields that the service reads. */
export type BankEvent = Omit<CallbackEvent, 'at' | 'bank_reference'> &
  Partial<Pick<CallbackEvent, 'at'>>;

let counted = 0;

/** Builds a new event about a payout. By default its amount and currency are those of the payout. */
export function newsOf(row: PayoutRow, news: Pick<BankEvent, 'type'> & Partial<BankEvent>) {
  counted += 1;
  return {
    id: `bev_test_${counted}`,
    key: row.id,
    amount: String(row.receiveMinor),
    currency: String(row.destinationCurrency),
    ...news,
  };
}

/** Sends a callback in the bank's place. Resolves to the status of the response. */
export async function callBack(
  {
    apiUrl,
    bank,
  }: Pick<TestSystem, 'apiUrl'> & {
    readonly bank: Pick<TestSystem['bank'], 'callbackSecret'>;
  },
  events: readonly BankEvent[],
  { secret = bank.callbackSecret, sentAtMs = Date.now(), signedBody = '' } = {},
): Promise<number> {
  const body = JSON.stringify({ events });
  const seconds = Math.floor(sentAtMs / 1000);
  const signature = createHmac('sha256', secret)
    .update(`${seconds}.${signedBody === '' ? body : signedBody}`)
    .digest('hex');
  const response = await fetch(`${apiUrl}/rails/sandbox/callbacks`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'bank-signature': `t=${seconds},v1=${signature}`,
    },
    body,
  });
  return response.status;
}
