import type { Fragment } from 'postgres';
import { bigints, exactlyOne, type Sql } from './client.js';
import { claimedRows, type DueDelivery, isListening, lease } from './deliveries.js';
import { isProbed } from './endpointHealth.js';
import { deliveryGroupSize } from './events.js';

/** The events of a group `g`: as few as it has, whatever the planner expects. */
const eventsOfGroup = (sql: Sql) => sql`
  lateral (select id, sequence from events
            where account_id = g.account_id and sequence between g.first_sequence and g.last_sequence
              and (type = any (g.types) or '*' = any (g.types)) offset 0) e`;

/** The endpoints of an account with groups of first attempts that nobody has claimed. */
export async function endpointsOfGroups(sql: Sql, accountId: string): Promise<readonly string[]> {
  const rows = await sql<{ endpointId: string }[]>`
    select distinct g.endpoint_id
      from delivery_groups g join webhook_endpoints w on w.id = g.endpoint_id
     where g.account_id = ${accountId} and ${isClaimable(sql)}`;
  return rows.map((row) => row.endpointId);
}

/** An endpoint that gets one request at a time is its own workflow's. */
const isClaimable = (sql: Sql) => sql`
  (g.claimed_at is null and ${isListening(sql)} and not ${isProbed(sql)})`;

/** Takes first attempts of an endpoint by their groups, oldest first: about so many, and no group twice. */
export async function claimGroups(
  sql: Sql,
  endpointId: string,
  most: number,
): Promise<readonly DueDelivery[]> {
  return sql<DueDelivery[]>`
    with claimed as (
      update delivery_groups set claimed_at = now(), next_attempt_at = now() + ${lease}::interval
       where id = any (array(
         select g.id from delivery_groups g join webhook_endpoints w on w.id = g.endpoint_id
          where g.endpoint_id = ${endpointId} and ${isClaimable(sql)}
          order by g.id limit ${Math.ceil(most / deliveryGroupSize)}::int for update of g skip locked))
      returning *
    ), taken as (
      select e.id as event_id, g.endpoint_id, 1 as attempts, g.next_attempt_at, g.id as group_id
        from claimed g cross join ${eventsOfGroup(sql)}
    )
    ${claimedRows(sql)}`;
}

/**
 * Ends groups that a run has claimed: what was not recorded is due at once, as if it had not been
 * claimed. Returns how much that is.
 */
export async function endGroups(sql: Sql, claimed: readonly DueDelivery[]): Promise<number> {
  const ids = bigints([...new Set(claimed.map(({ groupId }) => groupId))]);
  const [row] = await sql<{ count: number }[]>`
    select end_delivery_groups(${ids}::bigint[], 'pending', true) as count`;
  return exactlyOne(row).count;
}

/** 25,000 deliveries a sweep: 0.2 s of PostgreSQL's time, where a statement may take 7 s. */
const endedTogether = 500;

/** Ends groups that are overdue, unclaimed or of a worker that has died: their deliveries are due. */
export async function endOverdueGroups(sql: Sql): Promise<void> {
  await sql`
    select end_delivery_groups(array(
      select id from delivery_groups where next_attempt_at < now()
       order by next_attempt_at limit ${endedTogether} for update skip locked), 'pending', false)`;
}

/** Releases an account's unclaimed groups: another worker claims them, or the next sweep ends them. */
export async function releaseGroups(sql: Sql, accountId: string): Promise<void> {
  await sql`
    update delivery_groups set next_attempt_at = now()
     where id = any (array(
       select id from delivery_groups
        where account_id = ${accountId} and claimed_at is null for update skip locked))`;
}

/** Deliveries of groups `g` that were not recorded, with the columns of `deliveries`. */
const pendingInGroups = (sql: Sql, chosen: Fragment) => sql`
  select e.id as event_id, g.endpoint_id, 'pending' as status,
         (g.claimed_at is not null)::int as attempts, g.claimed_at as last_attempt_at,
         null::int as last_status, null as last_error, null::int as last_latency_ms, g.next_attempt_at
    from delivery_groups g cross join ${eventsOfGroup(sql)}
   where ${chosen} and (select count(*) from deliveries d
                         where d.event_id = e.id and d.endpoint_id = g.endpoint_id) = 0`;

/** That of each event `o` of the query around it, of any endpoint. */
export const pendingInGroupsOfEach = (sql: Sql) =>
  pendingInGroups(
    sql,
    sql`e.id = o.id and g.account_id = o.account_id
      and o.sequence between g.first_sequence and g.last_sequence`,
  );

/** That of an endpoint. */
export const pendingInGroupsAt = (sql: Sql, endpointId: string) =>
  pendingInGroups(sql, sql`g.endpoint_id = ${endpointId}`);
