import { exactlyOne, type Sql } from './client.js';

/** Records a heartbeat, and the interruption before it, if the database may have lost data since the last. */
export async function recordHeartbeat(sql: Sql): Promise<void> {
  await sql`select beat()`;
}

/** Returns the time since the last heartbeat, which each sweep records; since 1970 if there was none. */
export async function sinceHeartbeatMs(sql: Sql): Promise<number> {
  const [row] = await sql<{ ms: number }[]>`
    select extract(epoch from now() - coalesce(max(beaten_at), to_timestamp(0)))::float8 * 1000 as ms
      from heartbeats`;
  return exactlyOne(row).ms;
}

/** The first `with` clause for the columns below. Materialized, to be read once for any number of payouts. */
export const lostTimes = (sql: Sql) =>
  sql`lost as materialized (select * from known_interruptions)`;

/**
 * Condition: no submission of payout `p` is recorded, but one may have been lost in an interruption. That of a
 * `sent` one was lost, recorded as an interruption or not: the rail has accepted it.
 */
const mayBeLost = (sql: Sql) =>
  sql`(p.status in ('processing', 'sent') and p.submit_started_at is null)`;

/**
 * When the rail last reported on payout `p`. If no submission is recorded, it was made before that report and lost,
 * recorded as an interruption or not.
 */
const reportedAt = (sql: Sql) =>
  sql`(select max(i.received_at) from rail_inbox i where i.payout_id = p.id)`;

/**
 * Condition: payout `p`, which was never accepted, may have been accepted and sent in an interruption, lost
 * since, before it was refused or canceled.
 */
export const mayBeSentUnaccepted = (sql: Sql) => sql`
  (p.rail is null and exists (select from lost where ended_at >= p.requested_at
    and began_at <= coalesce(p.failed_since, p.canceled_since)))`;

/** The first time at which payout `p` was or may have been sent; null if it certainly was not. */
export const firstSentAt = (sql: Sql) => sql`
  coalesce(p.submit_started_at, case when ${mayBeLost(sql)} then (
    select greatest(min(began_at), p.requested_at) from lost
     where ended_at >= p.requested_at and began_at <= coalesce(p.sent_since, 'infinity')
    having count(*) > 0) end, case when p.status = 'sent'
      or (p.status = 'processing' and ${reportedAt(sql)} is not null) then p.requested_at end)`;

/**
 * The last time at which payout `p` was or may have been sent; null if it certainly was not. In an
 * interruption it may also have been sent again, until the rail accepted it.
 */
export const lastSentAt = (sql: Sql) => sql`
  coalesce(case when p.last_sent_at is not null or ${mayBeLost(sql)} then
    greatest(p.last_sent_at, (select max(least(ended_at, p.sent_since)) from lost
      where ended_at >= coalesce(p.last_sent_at, p.requested_at)
        and began_at <= coalesce(p.sent_since, 'infinity'))) end,
    case p.status when 'sent' then p.sent_since when 'processing' then ${reportedAt(sql)} end)`;
