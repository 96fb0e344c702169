import type { Fragment } from 'postgres';
import { bigints, exactlyOne, idsIn, type Sql } from './client.js';
import { claimedRows, type DueDelivery, isListening, lease } from './deliveries.js';
import { isProbed } from './endpointHealth.js';
import { deliveryGroupSize } from './events.js';

/** The events of a group `g`. `offset 0` makes the planner look up these few rows, whatever it expects. */
export const eventsOfGroup = (sql: Sql) => sql`
  lateral (select id, sequence from events
            where account_id = g.account_id and sequence between g.first_sequence and g.last_sequence
              and (type = any (g.types) or '*' = any (g.types)) offset 0) e`;

/** Returns the endpoints of an account that have unclaimed groups of first attempts. */
export const endpointsOfGroups = (sql: Sql, accountId: string) =>
  idsIn(sql<{ id: string }[]>`
    select distinct g.endpoint_id as id
      from delivery_groups g join webhook_endpoints w on w.id = g.endpoint_id
     where g.account_id = ${accountId} and ${isClaimable(sql)}`);

/** Condition: group `g` may be claimed. Not if `w` gets one request at a time, from its own workflow. */
const isClaimable = (sql: Sql) => sql`
  (g.claimed_at is null and ${isListening(sql)} and not ${isProbed(sql)})`;

/**
 * Claims about `most` first attempts of an endpoint in whole groups, oldest first, no group twice. What one
 * request contains is decided in activities/webhookMessages.ts.
 */
export const claimGroups = async (sql: Sql, endpointId: string, most: number) => sql<DueDelivery[]>`
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

/**
 * Ends groups that a run has claimed. Deliveries without a recorded result are due at once, as if they had
 * not been claimed. Returns their number.
 */
export async function endGroups(sql: Sql, claimed: readonly DueDelivery[]): Promise<number> {
  const ids = bigints([...new Set(claimed.map(({ groupId }) => groupId))]);
  const [row] = await sql<{ count: number }[]>`
    select end_delivery_groups(${ids}::bigint[], 'pending', true) as count`;
  return exactlyOne(row).count;
}

/** Maximum number of groups per sweep: 25,000 deliveries take PostgreSQL 0.2 s; its timeout is 7 s. */
const endedTogether = 500;

/** Ends overdue groups, which are unclaimed or claimed by a dead worker. Their deliveries are then due. */
export const endOverdueGroups = async (sql: Sql) => sql`
  select end_delivery_groups(array(
    select id from delivery_groups where next_attempt_at < now()
     order by next_attempt_at limit ${endedTogether} for update skip locked), 'pending', false)`;

/** Makes an account's unclaimed groups due: another worker claims them, or the next sweep ends them. */
export const releaseGroups = async (sql: Sql, accountId: string) => sql`
  update delivery_groups set next_attempt_at = now()
   where id = any (array(
     select id from delivery_groups
      where account_id = ${accountId} and claimed_at is null for update skip locked))`;

/** Selects unrecorded deliveries of groups `g`, with the columns of `deliveries`. */
const pendingInGroups = (sql: Sql, chosen: Fragment) => sql`
  select e.id as event_id, g.endpoint_id, 'pending' as status,
         (g.claimed_at is not null)::int as attempts, g.claimed_at as last_attempt_at,
         null::int as last_status, null as last_error, null::int as last_latency_ms, g.next_attempt_at
    from delivery_groups g cross join ${eventsOfGroup(sql)}
   where ${chosen} and (select count(*) from deliveries d
                         where d.event_id = e.id and d.endpoint_id = g.endpoint_id) = 0`;

/** Unrecorded deliveries in groups, to any endpoint, of each event `o` of the enclosing query. */
export const pendingInGroupsOfEach = (sql: Sql) =>
  pendingInGroups(
    sql,
    sql`e.id = o.id and g.account_id = o.account_id
      and o.sequence between g.first_sequence and g.last_sequence`,
  );

/** Unrecorded deliveries in the groups of an endpoint. */
export const pendingInGroupsAt = (sql: Sql, endpointId: string) =>
  pendingInGroups(sql, sql`g.endpoint_id = ${endpointId}`);
