import type { PayoutStatus } from '../domain/payout.js';
import type { RailReportJson } from '../domain/railReport.js';
import { mostRead, type Sql, when } from './client.js';
import { type DeliveryRow, deliveriesOfEach } from './deliveryLog.js';
import { failedLately } from './endpointHealth.js';
import { isUnapplied, type PayoutRow } from './payouts.js';
import type { WebhookEndpointRow } from './webhookEndpoints.js';

// Lists for operators, across all accounts. The lists of one account are in payoutLists.ts.

/** Maximum number of deliveries counted: beyond it the exact number does not matter and is slow to count. */
const mostCounted = 10_000;

export type OperatorFilter = {
  readonly account?: string | undefined;
  readonly status?: PayoutStatus | undefined;
  /** Minimum time since the request. */
  readonly olderThanMs?: number | undefined;
};

function matching(sql: Sql, { account, status, olderThanMs }: OperatorFilter) {
  const isOlder = (ms: number) =>
    sql`requested_at <= now() - make_interval(secs => ${ms}::float8 / 1000)`;
  return sql`
    ${when(sql, account, (id) => sql`account_id = ${id}`)}
    and ${when(sql, status, (wanted) => sql`status = ${wanted}`)}
    and ${when(sql, olderThanMs, isOlder)}`;
}

/**
 * Returns payouts that wait for an operator, and those submitted more than a minute ago without a response.
 * The latter are found by their wake time if they have their own workflow, or else by their open batch. Live
 * payouts come first, so that test payouts cannot hide them, and among them those that wait for an operator, so
 * that those without a response cannot hide them.
 */
export function stuckPayouts(sql: Sql, filter: OperatorFilter): Promise<readonly PayoutRow[]> {
  const isInDoubt = sql`
    status = 'processing' and attention_at is null
    and submit_started_at < now() - interval '1 minute'`;
  return sql<PayoutRow[]>`
    select * from (
      select * from payouts where attention_at is not null
      union all select * from payouts where wake_at is not null and ${isInDoubt}
      union all select p.* from batches b
        cross join lateral (select * from payouts
          where batch_id = b.id and wake_at is null and ${isInDoubt}) p
        where b.status = 'processing') p
     where ${matching(sql, filter)}
     order by mode = 'test', attention_at is null, coalesce(attention_at, submit_started_at)
     limit ${mostRead}`;
}

/** Returns payouts in these statuses, oldest first. Reads account by account, to use the index. */
export function oldestPayouts(
  sql: Sql,
  statuses: readonly PayoutStatus[],
  filter: OperatorFilter,
): Promise<readonly PayoutRow[]> {
  return sql<PayoutRow[]>`
    select p.* from accounts a
     cross join unnest(${[...statuses]}::text[]) s (status)
     cross join lateral (select * from payouts
       where account_id = a.id and status = s.status and ${matching(sql, { ...filter, account: undefined })}
       order by requested_at limit ${mostRead}) p
     where ${when(sql, filter.account, (id) => sql`a.id = ${id}`)}
     order by p.requested_at limit ${mostRead}`;
}

export type CallbackRow = {
  readonly receivedAt: Date;
  readonly report: RailReportJson;
  readonly outcome: string | null;
};

/** Returns the rail's reports about a payout, in order of arrival. */
export function callbacksOf(sql: Sql, payoutId: string): Promise<readonly CallbackRow[]> {
  return sql<CallbackRow[]>`
    select i.received_at, i.fact as report,
           case when not ${isUnapplied(sql)} then coalesce(i.outcome, 'applied') end as outcome
      from rail_inbox i join payouts p on p.id = i.payout_id
     where i.payout_id = ${payoutId} order by i.id`;
}

export type PayoutDelivery = { readonly event: string } & Pick<
  DeliveryRow,
  'endpointId' | 'status' | 'attempts' | 'lastAttemptAt'
>;

/** Returns the webhook deliveries of a payout and their status. */
export function deliveriesOfPayout(sql: Sql, id: string): Promise<readonly PayoutDelivery[]> {
  return sql<PayoutDelivery[]>`
    select o.type as event, d.endpoint_id, d.status, d.attempts, d.last_attempt_at
      from events o cross join ${deliveriesOfEach(sql)}
     where o.subject_id = ${id} order by o.sequence, d.endpoint_id`;
}

export type FailingEndpoint = Pick<
  WebhookEndpointRow,
  'id' | 'accountId' | 'url' | 'status' | 'statusReason' | 'failingSince'
> & { readonly waiting: number };

/** Returns endpoints that are failing or disabled, longest failing first. */
export function failingEndpoints(
  sql: Sql,
  account: string | undefined,
): Promise<readonly FailingEndpoint[]> {
  return sql<FailingEndpoint[]>`
    select w.id, w.account_id, w.url, w.status, w.status_reason, w.failing_since,
           (select count(*)::int from (select from deliveries
             where endpoint_id = w.id and status = 'pending' limit ${mostCounted}) d) as waiting
      from webhook_endpoints w
     where w.deleted_at is null and (${failedLately(sql)} or w.status = 'disabled')
       and ${when(sql, account, (id) => sql`w.account_id = ${id}`)}
     order by w.failing_since, w.id limit ${mostRead}`;
}
