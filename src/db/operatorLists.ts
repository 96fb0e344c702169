import type { PayoutStatus } from '../domain/payout.js';
import type { RailReportJson } from '../domain/railReport.js';
import { type Sql, when } from './client.js';
import { type DeliveryRow, deliveriesOfEach } from './deliveryLog.js';
import { isUnapplied, type PayoutRow } from './payouts.js';
import type { WebhookEndpointRow } from './webhookEndpoints.js';

// What operators look at, of every account; the lists of an account are in payoutLists.ts.

/** More than a person looks through. */
const listLimit = 1_000;

/** Whether more wait is of no interest, and counting them would take long. */
const mostCounted = 10_000;

export type OperatorFilter = {
  readonly account?: string | undefined;
  readonly status?: PayoutStatus | undefined;
  /** Requested that long ago, or longer. */
  readonly olderThanMs?: number | undefined;
};

function matching(sql: Sql, { account, status, olderThanMs }: OperatorFilter) {
  return sql`
    ${when(sql, account, (id) => sql`account_id = ${id}`)}
    and ${when(sql, status, (wanted) => sql`status = ${wanted}`)}
    and ${when(
      sql,
      olderThanMs,
      (ms) => sql`
      requested_at <= now() - make_interval(secs => ${ms}::float8 / 1000)`,
    )}`;
}

/**
 * The payouts that wait for a person, and those that the rail was given more than a minute ago without
 * an answer: those of their own workflow are due, those of a batch belong to an open one.
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
     order by coalesce(attention_at, submit_started_at) limit ${listLimit}`;
}

/** Payouts of these statuses, oldest first: account by account, as the index has them. */
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
       order by requested_at limit ${listLimit}) p
     where ${when(sql, filter.account, (id) => sql`a.id = ${id}`)}
     order by p.requested_at limit ${listLimit}`;
}

export type CallbackRow = {
  readonly receivedAt: Date;
  readonly report: RailReportJson;
  readonly outcome: string | null;
};

/** What the rail has reported of a payout, in the order of arrival. */
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

/** The webhooks of a payout, and how far each is. */
export function deliveriesOfPayout(sql: Sql, id: string): Promise<readonly PayoutDelivery[]> {
  return sql<PayoutDelivery[]>`
    select o.type as event, d.endpoint_id, d.status, d.attempts, d.last_attempt_at
      from events o cross join ${deliveriesOfEach(sql)}
     where o.subject_id = ${id} order by o.sequence, d.endpoint_id`;
}

export type AilingEndpoint = Pick<
  WebhookEndpointRow,
  'id' | 'accountId' | 'url' | 'status' | 'statusReason' | 'failingSince'
> & { readonly waiting: number };

/** The endpoints that fail or are disabled, those that fail for longest first. */
export function ailingEndpoints(
  sql: Sql,
  account: string | undefined,
): Promise<readonly AilingEndpoint[]> {
  return sql<AilingEndpoint[]>`
    select w.id, w.account_id, w.url, w.status, w.status_reason, w.failing_since,
           (select count(*)::int from (select from deliveries
             where endpoint_id = w.id and status = 'pending' limit ${mostCounted}) d) as waiting
      from webhook_endpoints w
     where w.deleted_at is null and (w.failing_since is not null or w.status = 'disabled')
       and ${when(sql, account, (id) => sql`w.account_id = ${id}`)}
     order by w.failing_since, w.id limit ${listLimit}`;
}
