import type { Sql } from './client.js';

/** Records that the database is found, and from which time on something may be missing. */
export async function beat(sql: Sql): Promise<void> {
  await sql`select beat()`;
}

/** When a payout `p` may have been sent that nobody is known to have sent. */
const lostTime = (sql: Sql) => sql`
  case when p.status = 'processing' and p.submit_started_at is null then lost_time(p.requested_at) end`;

/** The first time that a payout `p` was sent, or may have been; null where it certainly was not. */
export const firstSentAt = (sql: Sql) => sql`
  coalesce(p.submit_started_at, lower(${lostTime(sql)}))`;

/** The last time. */
export const lastSentAt = (sql: Sql) => sql`coalesce(p.last_sent_at, upper(${lostTime(sql)}))`;
