import { corridorCurrencies } from '../domain/corridor.js';
import type { Sql } from './client.js';
import type { Exposure } from './ledger.js';

/**
 * Payouts that were accepted in the same half hour, and either settled in the same half hour or are still
 * open. They share one estimated arrival, and either all or none are late, because cut-offs and ends of
 * days fall on half hours in UTC.
 */
export type ArrivalGroup = Omit<Exposure, 'heldMinor' | 'netMinor' | 'owedMinor'> & {
  readonly isOpen: boolean;
  /** When the first payout was accepted. */
  readonly acceptedAt: Date;
  /** When the last payout settled; now, if they are open. */
  readonly endedAt: Date;
};

/**
 * Returns the payouts that the ledger settled in the last `days` days, and all open payouts, in groups.
 * Reads account by account, so that both are found by index, the settled ones by their entries' time.
 */
export const listArrivals = (sql: Sql, days: number) => sql<ArrivalGroup[]>`
  select p.mode, p.source_currency, p.destination_currency, p.is_open,
         count(*)::int as payouts, min(p.processing_since) as accepted_at,
         max(p.ended_at) as ended_at
    from accounts a cross join lateral (
      select p.*, p.settled_at as ended_at, false as is_open
        from ledger_entries e join payouts p on p.id = e.payout_id
       where e.account_id = a.id and e.currency = any (${[...corridorCurrencies()]})
         and e.kind = 'settle' and e.created_at >= now() - make_interval(days => ${days}::int)
         and p.settled_at is not null
      union all
      select *, now(), true from payouts
       where account_id = a.id and status in ('processing', 'sent')) p
   group by 1, 2, 3, 4, date_bin('30 minutes', p.processing_since, 'epoch'),
         date_bin('30 minutes', p.ended_at, 'epoch')
   order by 3, 1, 4`;
