import { createHmac } from 'node:crypto';
import type { CallbackEvent } from '../../sandbox/bank/books.js';
import type { PayoutRow } from '../../src/db/payouts.js';
import type { TestSystem } from '../servers/system.js';

/** An event as the sandbox bank sends it, with no more than the service reads. */
export type BankEvent = Omit<CallbackEvent, 'at' | 'bank_reference'> &
  Partial<Pick<CallbackEvent, 'at'>>;

let counted = 0;

/** News of a payout, true to its frozen amounts unless told otherwise; a new event each time. */
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

/** Calls back in the bank's place. Resolves to the status of the answer. */
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
