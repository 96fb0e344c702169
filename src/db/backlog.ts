import type { BacklogSample } from '../metrics.js';
import type { Sql } from './client.js';
import { waitingEndpoints } from './deliveries.js';
import { eventsOfGroup } from './deliveryGroups.js';
import { failedLately, isProbed } from './endpointHealth.js';
import { deliveryGroupSize } from './events.js';

/**
 * Maximum number of rows counted per account and status, per mode if parked, per endpoint, or in all groups of
 * first attempts. Keeps the query at milliseconds even if hundreds of thousands of an account's rows wait, other than
 * in paused batches. Ages remain exact, because the oldest rows are read first.
 */
const mostCounted = 10_000;

/** Maximum number of an account's rows of one status that are read: ten paused batches of 10,000. */
const mostRead = 100_000;

/**
 * Measures the backlogs in one statement of index look-ups, whose number grows with accounts, endpoints and
 * items of paused batches, not with other payouts.
 */
export async function readBacklog(sql: Sql): Promise<readonly BacklogSample[]> {
  return sql<BacklogSample[]>`
    with paused as materialized (
      select id from batches where status = 'processing' and paused_at is not null
    ), unfinished as (${unfinished(sql)}), parked as (
      select attention_reason as reason, mode, count(*) as count, min(attention_at) as since
        from unnest(array['live', 'test']) m (each)
       cross join lateral (select * from payouts where mode = m.each and attention_at is not null
                            order by attention_at limit ${mostCounted}) p
       group by 1, 2
    ), deliveries_left as (
      select case when d.next_attempt_at > now() then 'waiting'
                  when ${isProbed(sql)} then 'failing' else 'due' end as state,
             count(*) as count, min(d.next_attempt_at) as since
        from (select e.endpoint_id, p.next_attempt_at from (${waitingEndpoints(sql)}) e
               cross join lateral (select next_attempt_at from deliveries
                                    where endpoint_id = e.endpoint_id and status = 'pending'
                                    order by next_attempt_at limit ${mostCounted}) p
              union all
              select g.endpoint_id, g.next_attempt_at
                from (select * from delivery_groups order by next_attempt_at
                       limit ${mostCounted / deliveryGroupSize}::int) g cross join ${eventsOfGroup(sql)}) d
        join webhook_endpoints w on w.id = d.endpoint_id
       group by 1
    ), endpoints as (
      select case when status = 'enabled' and ${isProbed(sql)} and ${failedLately(sql)} then 'failing'
                  else status end as state,
             count(*) as count
        from webhook_endpoints w where deleted_at is null group by 1
    ), open_batches as (
      select case when paused_at is null then 'processing' else 'paused' end as state,
             count(*) as count, min(coalesce(paused_at, created_at)) as since
        from (select * from batches where status = 'processing'
               order by created_at limit ${mostCounted}) b
       group by 1
    ), counted (metric, labels, count, since) as (
      select 'payouts_unfinished', json_build_object('status', status, 'corridor', corridor,
             'mode', mode, 'state', state), count, since from unfinished
      union all select 'payouts_parked', json_build_object('reason', reason, 'mode', mode), count,
             since from parked
      union all select 'webhook_backlog', json_build_object('state', state), count, since
        from deliveries_left
      union all select 'batches_open', json_build_object('state', state), count, since
        from open_batches
    )
    select metric, labels, count::float8 as value from counted
    union all select metric || '_oldest_seconds', labels,
           greatest(extract(epoch from now() - since), 0)::float8 from counted
    union all select 'webhook_endpoints', json_build_object('state', state), count::float8
      from endpoints
    union all select 'rate_age_seconds', json_build_object('currency', currency),
           extract(epoch from now() - as_of)::float8 from current_rates
     -- A currency that its provider has left out for two weeks is not late but dropped.
     where as_of > now() - interval '14 days' or as_of = (select max(as_of) from current_rates)
    union all select 'rates_waiting', '{}', count(*)::float8 from waiting_rates`;
}

/**
 * Counts payouts that are not final, by corridor and state. Those that wait in a paused batch are counted
 * separately: 10,000 of them would hide what is stuck behind them.
 */
const unfinished = (sql: Sql) => sql`
  select p.status, p.mode,
         coalesce(p.source_currency || '-' || p.destination_currency, 'none') as corridor,
         p.state, count(*) as count, min(p.requested_at) as since
    from (select p.*, case when p.attention_at is null then 'open' else 'parked' end as state
            from accounts a cross join (values ('pending'), ('processing'), ('sent')) s (status)
           cross join lateral (
             select * from (
               select * from payouts where account_id = a.id and status = s.status
                order by requested_at limit ${mostRead}) r
              where s.status = 'sent' or attention_at is not null or submit_started_at is not null
                 or batch_id is null or batch_id <> all (array(select id from paused))
              limit ${mostCounted}) p
          union all
          select p.*, 'paused' from paused join payouts p on p.batch_id = paused.id
           where p.status in ('pending', 'processing') and p.submit_started_at is null
             and p.attention_at is null) p
   group by 1, 2, 3, 4`;
