import type { Fragment } from 'postgres';
import { type PayoutStatus, payoutStatuses } from '../domain/payout.js';
import type { Sql } from './client.js';
import {
  beyond,
  type Created,
  createdWithin,
  given,
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
 * however many there are; with several, one of them finds and the others sort out.
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
         and ${matching(sql, filter)}
       ${nearest(sql, page, ['requested_at', 'id'])}) p
    ${nearest(sql, page, ['p.requested_at', 'p.id'])}`;
}

type Term = { readonly name: string; readonly value: string };

/**
 * What the payouts are found by: of several filters the one that most likely names few. A
 * currency names many, and any status but the one that all come to names fewer.
 */
function termOf(filter: PayoutFilter): Term | undefined {
  const isCommonStatus = filter.status === undefined || filter.status === 'settled';
  const metadata = Object.entries(filter.metadata ?? {});
  const terms = [
    { name: 'reference', value: filter.reference },
    ...metadata.map(([key, value]) => ({ name: `metadata ${key}`, value })),
    { name: 'batch', value: filter.batchId },
    { name: 'beneficiary', value: filter.beneficiaryId },
    {
      name: 'destination_currency',
      value: isCommonStatus ? filter.destinationCurrency : undefined,
    },
    { name: 'source_currency', value: isCommonStatus ? filter.sourceCurrency : undefined },
  ];
  return terms.find((term): term is Term => term.value !== undefined);
}

/**
 * Walks the term in the order of the list and looks each payout up. The limit of one row keeps
 * the planner from joining the tables as wholes, which it does where it guesses few rows.
 */
async function byTerm(sql: Sql, accountId: string, page: Page, filter: PayoutFilter, term: Term) {
  return sql<PayoutRow[]>`
    select p.* from payout_terms t cross join lateral (
      select * from payouts
       where id = t.payout_id and account_id = ${accountId} and ${matching(sql, filter)}
       limit 1) p
     where t.term = payout_term(${accountId}, ${term.name}, ${term.value})
       and ${beyond(sql, page, ['t.requested_at', 't.payout_id'])}
       and ${createdWithin(sql, filter.created, 't.requested_at')}
     ${nearest(sql, page, ['t.requested_at', 't.payout_id'])}`;
}

function matching(sql: Sql, filter: PayoutFilter): Fragment {
  const is = (column: string, value: string | undefined) =>
    given(sql, value, (wanted) => sql`${sql(column)} = ${wanted}`);
  return sql`
    ${is('status', filter.status)}
    and ${is('source_currency', filter.sourceCurrency)}
    and ${is('destination_currency', filter.destinationCurrency)}
    and ${is('reference', filter.reference)}
    and ${is('beneficiary_id', filter.beneficiaryId)}
    and ${is('batch_id', filter.batchId)}
    and ${given(sql, filter.metadata, (wanted) => sql`metadata @> ${sql.json(wanted)}`)}`;
}
