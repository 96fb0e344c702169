import { exactlyOne, type Sql } from './client.js';

/** Records that the database is found, and from which time on something may be missing. */
export async function beat(sql: Sql): Promise<void> {
  await sql`select beat()`;
}

/** How long ago a sweep began; since 1970 where none ever did. */
export async function sinceHeartbeatMs(sql: Sql): Promise<number> {
  const [row] = await sql<{ ms: number }[]>`
    select extract(epoch from now() - coalesce(max(beaten_at), to_timestamp(0)))::float8 * 1000 as ms
      from heartbeats`;
  return exactlyOne(row).ms;
}

/** The first `with` of a statement that has the times below: read once, whatever number of payouts it has. */
export const lostTimes = (sql: Sql) =>
  sql`lost as materialized (select * from known_interruptions)`;

/** Whether it is not known that a payout `p` was sent, and it may have been in a time that was lost. */
const mayBeLost = (sql: Sql) => sql`p.status = 'processing' and p.submit_started_at is null`;

/** The first time that a payout `p` was sent, or may have been; null where it certainly was not. */
export const firstSentAt = (sql: Sql) => sql`
  coalesce(p.submit_started_at, case when ${mayBeLost(sql)} then (
    select greatest(min(began_at), p.requested_at) from lost
     where ended_at >= p.requested_at having count(*) > 0) end)`;

/** The last time. */
export const lastSentAt = (sql: Sql) => sql`
  coalesce(p.last_sent_at, case when ${mayBeLost(sql)} then (
    select max(ended_at) from lost where ended_at >= p.requested_at) end)`;
