import { type Sql, when } from './client.js';
import type { AttemptResult, KnownPair, Pair } from './deliveries.js';
import { pendingInGroupsAt, pendingInGroupsOfEach } from './deliveryGroups.js';
import type { PageResult } from './page.js';

export type DeliveryRow = KnownPair & {
  readonly attempts: number;
  readonly status: 'pending' | 'delivered' | 'exhausted' | 'canceled';
  readonly lastAttemptAt: Date | null;
  readonly lastStatus: number | null;
  readonly lastError: string | null;
  readonly lastLatencyMs: number | null;
};

/** One attempt. A successful attempt has no error and no answer. */
export type AttemptRow = Pair &
  Pick<AttemptResult, 'at' | 'latencyMs' | 'httpStatus' | 'error' | 'answer'> & {
    readonly nextAttemptAt: Date | null;
  };

const deliveryColumns = (sql: Sql) => sql`
  event_id, endpoint_id, status, attempts, last_attempt_at, last_status, last_error, last_latency_ms,
  next_attempt_at`;

/** The deliveries `d` of each event `o` of the enclosing query. */
export const deliveriesOfEach = (sql: Sql) => sql`
  lateral (select ${deliveryColumns(sql)} from deliveries where event_id = o.id
           union all ${pendingInGroupsOfEach(sql)}) d`;

/** Returns the deliveries of an event, one per subscribed endpoint, so as few as an account has endpoints. */
export const deliveriesOf = async (sql: Sql, eventId: string) => sql<DeliveryRow[]>`
  select d.* from events o cross join ${deliveriesOfEach(sql)}
   where o.id = ${eventId} order by d.endpoint_id desc`;

/** Maximum number of attempts shown per event and endpoint: more than one run of the retry schedule. */
const attemptsShown = 20;

/** Returns the attempts to deliver an event to all endpoints, newest first. */
export const attemptsAt = async (sql: Sql, eventId: string) => sql<AttemptRow[]>`
  select a.* from deliveries d cross join lateral (
    select event_id, endpoint_id, at, latency_ms, http_status, error, answer, next_attempt_at
      from delivery_attempts
     where event_id = d.event_id and endpoint_id = d.endpoint_id
     order by at desc limit ${attemptsShown}::int - (d.status = 'delivered')::int) a
   where d.event_id = ${eventId}
  union all
  select event_id, endpoint_id, last_attempt_at, last_latency_ms, last_status, null, null, null
    from deliveries where event_id = ${eventId} and status = 'delivered'
   order by at desc`;

/** Filters for listing deliveries, with the statuses they match. `failed` means failed for good. */
export const deliveryFilters = {
  pending: ['pending'],
  delivered: ['delivered'],
  failed: ['exhausted', 'canceled'],
  exhausted: ['exhausted'],
  canceled: ['canceled'],
} as const;
const deliveryStatuses = ['pending', 'delivered', ...deliveryFilters.failed];
export type DeliveryFilter = keyof typeof deliveryFilters;

/** Lists a page of an endpoint's deliveries, newest event first. */
export async function listDeliveries(
  sql: Sql,
  endpointId: string,
  { limit, from }: { readonly limit: number; readonly from: string | null },
  { status }: { readonly status?: DeliveryFilter | undefined },
): Promise<PageResult<DeliveryRow>> {
  const statuses: readonly string[] =
    status === undefined ? deliveryStatuses : deliveryFilters[status];
  const newest = sql`
    endpoint_id = ${endpointId} and ${when(sql, from, (id) => sql`event_id < ${id}`)}`;
  const ordered = sql`order by event_id desc limit ${limit + 1}`;
  // The newest deliveries overall are among the newest of each status. Pending ones have their own index.
  const rows = await sql<DeliveryRow[]>`
    select ${deliveryColumns(sql)} from (
      select n.* from unnest(${statuses}::text[]) t (status) cross join lateral (
        select ${deliveryColumns(sql)} from deliveries
         where status = t.status and status <> 'pending' and ${newest} ${ordered}) n
      union all
      (select ${deliveryColumns(sql)} from deliveries
        where 'pending' = any (${statuses}) and status = 'pending' and ${newest} ${ordered})
      union all
      (select * from (${pendingInGroupsAt(sql, endpointId)}) g
        where 'pending' = any (${statuses}) and ${newest} ${ordered})
    ) d ${ordered}`;
  return { rows: rows.slice(0, limit), hasMore: rows.length > limit };
}

/** Finds the position at which a list of an endpoint's deliveries continues: the ID of an event in it. */
export async function deliveryPosition(
  sql: Sql,
  endpointId: string,
  eventId: string,
): Promise<string | undefined> {
  const [row] = await sql<Pair[]>`
    select d.event_id from events o cross join ${deliveriesOfEach(sql)}
     where o.id = ${eventId} and d.endpoint_id = ${endpointId}`;
  return row?.eventId;
}
