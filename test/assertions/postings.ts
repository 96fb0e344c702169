import type { Database } from '../../src/db/client.js';
import type { PayoutRow } from '../../src/db/payouts.js';

/** The effect of an entry on each account: `account:CURRENCY` → minor units, without omissions. */
export type Postings = Readonly<Record<string, bigint>>;

/** The postings of a payout: one record per entry, keyed by the entry's kind, in order. */
export async function postingsOf(
  database: Database,
  payoutId: string,
): Promise<Readonly<Record<string, Postings>>> {
  const rows = await database<{ kind: string; account: string; minor: bigint }[]>`
    select e.kind, a.kind || ':' || p.currency as account, sum(p.amount_minor)::bigint as minor
      from ledger_entries e
      join ledger_postings p on p.entry_id = e.id
      join ledger_accounts a on a.id = p.ledger_account_id
     where e.payout_id = ${payoutId}
     group by e.id, e.kind, a.kind, p.currency order by e.id, account`;
  const entries: Record<string, Record<string, bigint>> = {};
  for (const { kind, account, minor } of rows) {
    entries[kind] = { ...entries[kind], [account]: minor };
  }
  return entries;
}

/**
 * The postings that the design's table specifies for a payout in two-decimal currencies, calculated
 * here from the frozen amounts with integers only. `returnedMinor` is the amount that the rail got back.
 */
export function expectedPostings(row: PayoutRow, returnedMinor = row.receiveMinor ?? 0n) {
  const { sourceCurrency: S, destinationCurrency: D } = row;
  const amount = row.sourceMinor ?? 0n;
  const fee = row.feeMinor ?? 0n;
  const net = amount - fee;
  const receive = row.receiveMinor ?? 0n;
  const atRate = floorAt(net, row.rate ?? '0');
  const spread = floorAt(net, row.mid ?? '0') - atRate;
  const rounding = atRate - receive;
  const position = receive + spread + rounding;
  return {
    accept: nonZero({ [`available:${S}`]: -amount, [`held:${S}`]: amount }),
    release: nonZero({ [`available:${S}`]: amount, [`held:${S}`]: -amount }),
    settle: nonZero({
      [`held:${S}`]: -amount,
      [`fx_position:${S}`]: net,
      [`fee_revenue:${S}`]: fee,
      [`fx_position:${D}`]: -position,
      [`rail_settlement:${D}`]: receive,
      [`spread_revenue:${D}`]: spread,
      [`rounding:${D}`]: rounding,
    }),
    return: nonZero({
      [`fx_position:${S}`]: -net,
      [`available:${S}`]: net,
      [`rail_settlement:${D}`]: -returnedMinor,
      [`return_costs:${D}`]: returnedMinor - receive,
      [`spread_revenue:${D}`]: -spread,
      [`rounding:${D}`]: -rounding,
      [`fx_position:${D}`]: position,
    }),
    late_payment: nonZero({ [`suspense:${D}`]: -receive, [`rail_settlement:${D}`]: receive }),
  };
}

function nonZero(postings: Postings): Postings {
  return Object.fromEntries(Object.entries(postings).filter(([, minor]) => minor !== 0n));
}

/** Multiplies an amount by an exact decimal rate and rounds down. */
function floorAt(minor: bigint, rate: string): bigint {
  const [whole = '0', fraction = ''] = rate.split('.');
  return (minor * BigInt(whole + fraction)) / 10n ** BigInt(fraction.length);
}
