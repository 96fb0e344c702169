import { afterCommit, type Sql } from '../db/client.js';
import type { PayoutRow } from '../db/payouts.js';
import { count, observe } from '../metrics.js';

type Moved = Pick<PayoutRow, 'status' | 'mode' | 'rail' | 'requestedAt' | 'settledSince'> &
  Pick<PayoutRow, 'sourceCurrency' | 'destinationCurrency'>;

/** Counts payouts by the status they have reached, and records how long the settled ones took. */
export function countMoves(sql: Sql, moved: readonly Moved[]): void {
  afterCommit(sql, () => {
    for (const { status, mode, rail, requestedAt, settledSince, ...pair } of moved) {
      const { sourceCurrency: from, destinationCurrency: to } = pair;
      const corridor = from !== null && to !== null ? `${from}-${to}` : 'none';
      count('payout_moves_total', { status, mode, corridor });
      if (status === 'settled' && settledSince !== null && rail !== null) {
        const tookMs = settledSince.getTime() - requestedAt.getTime();
        observe('payout_settlement_seconds', { rail }, tookMs / 1000);
      }
    }
  });
}
