import type { Fragment } from 'postgres';
import { type PayoutStatus, payoutStatuses } from '../domain/payout.js';
import type { Sql } from './client.js';
import {
  beyond,
  type Created,
  createdWithin,
  type Listed,
  listed,
  nearest,
  type Page,
} from './page.js';
import type { PayoutRow } from './payouts.js';

export type PayoutFilter = {
  readonly created?: Created | undefined;
  readonly status?: PayoutStatus | undefined;
  readonly sourceCurrency?: string | undefined;
  readonly destinationCurrency?: string | undefined;
  readonly reference?: string | undefined;
  readonly beneficiaryId?: string | undefined;
  readonly batchId?: string | undefined;
  /** All of these names with these values. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
};

/**
 * A page of an account's payouts. With one filter the rows read are a few times the page,
 * however many there are; with several, one filter finds and the others sort out.
 */
export async function listPayouts(
  sql: Sql,
  accountId: string,
  page: Page,
  filter: PayoutFilter,
): Promise<Listed<PayoutRow>> {
  const term = termOf(filter);
  const rows =
    term === undefined
      ? await byStatus(sql, accountId, page, filter)
      : await byTerm(sql, accountId, page, filter, term);
  return listed(page, rows);
}

/** The newest of each status are among the newest of all. */
async function byStatus(sql: Sql, accountId: string, page: Page, filter: PayoutFilter) {
  const statuses = filter.status === undefined ? [...payoutStatuses] : [filter.status];
  return sql<PayoutRow[]>`
    select p.* from unnest(${statuses}::text[]) s (status) cross join lateral (
      select * from payouts
       where account_id = ${accountId} and status = s.status
         and ${beyond(sql, page, ['requested_at', 'id'])}
         and ${createdWithin(sql, filter.created, 'requested_at')}
       ${nearest(sql, page, ['requested_at', 'id'])}) p
    ${nearest(sql, page, ['p.requested_at', 'p.id'])}`;
}

type Term = { readonly name: string; readonly value: string };

/** What the payouts are found by: of several filters the one that most likely names few. */
function termOf(filter: PayoutFilter): Term | undefined {
  const terms = [
    { name: 'reference', value: filter.reference },
    ...Object.entries(filter.metadata ?? {}).map(([key, value]) => ({
      name: `metadata ${key}`,
      value,
    })),
    { name: 'batch', value: filter.batchId },
    { name: 'beneficiary', value: filter.beneficiaryId },
    { name: 'destination_currency', value: filter.destinationCurrency },
    { name: 'source_currency', value: filter.sourceCurrency },
  ];
  return terms.find((term): term is Term => term.value !== undefined);
}

/**
 * Both tables have the columns of the order, and each its cursor, so that the planner may begin
 * with either: with the term, or with the status where that is rarer.
 */
async function byTerm(sql: Sql, accountId: string, page: Page, filter: PayoutFilter, term: Term) {
  return sql<PayoutRow[]>`
    select p.* from payout_terms t
      join payouts p on p.id = t.payout_id and p.requested_at = t.requested_at
     where t.term = payout_term(${accountId}, ${term.name}, ${term.value})
       and ${beyond(sql, page, ['t.requested_at', 't.payout_id'])}
       and ${createdWithin(sql, filter.created, 't.requested_at')}
       and p.account_id = ${accountId} and ${matching(sql, filter)}
     ${nearest(sql, page, ['t.requested_at', 't.payout_id'])}`;
}

function matching(sql: Sql, filter: PayoutFilter): Fragment {
  const { status = null, sourceCurrency = null, destinationCurrency = null } = filter;
  const { reference = null, beneficiaryId = null, batchId = null } = filter;
  return sql`
    (${status}::text is null or p.status = ${status})
    and (${sourceCurrency}::text is null or p.source_currency = ${sourceCurrency})
    and (${destinationCurrency}::text is null or p.destination_currency = ${destinationCurrency})
    and (${reference}::text is null or p.reference = ${reference})
    and (${beneficiaryId}::text is null or p.beneficiary_id = ${beneficiaryId})
    and (${batchId}::text is null or p.batch_id = ${batchId})
    and p.metadata @> ${sql.json(filter.metadata ?? {})}`;
}
