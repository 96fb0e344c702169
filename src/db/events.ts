import { type EventType, eventTypes } from '../domain/event.js';
import type { PayoutStatus } from '../domain/payout.js';
import { exactlyOne, type Sql, unnest, when } from './client.js';
import { newId } from './id.js';
import { orderAndLimit, type Page, type PageResult, pageRows, toPage } from './page.js';
import type { PayoutRow } from './payouts.js';

/** The fields of a payout that may change later, as of the event. Format 1. */
export type PayoutFacts = {
  readonly status: PayoutStatus;
  readonly statusReason: string | null;
  /** ISO 8601. */
  readonly settledAt: string | null;
  readonly returnedMinor: string | null;
};

/** A batch or an endpoint as the API returns it, in the newest version's format. */
type Whole = Readonly<Record<string, unknown>>;

type Facts =
  | { readonly type: Extract<EventType, `payout.${string}`>; readonly facts: PayoutFacts }
  | { readonly type: 'batch.completed'; readonly facts: Whole }
  | { readonly type: 'webhook_endpoint.disabled'; readonly facts: Whole };

export type NewEvent = Facts & {
  readonly accountId: string;
  /** ID of the payout, batch or webhook endpoint that the event is about. */
  readonly subjectId: string;
};

/** An event with the present columns of its payout, which are null if it is not about a payout. */
export type EventRow = PayoutRow &
  NewEvent & { readonly id: string; readonly sequence: bigint; readonly createdAt: Date };

/** If a transaction has events of this many payouts, first attempts are stored in groups of this size. */
export const deliveryGroupSize = 50;

/**
 * Stores events with the next sequence numbers of their accounts, and a delivery for each subscribed
 * endpoint, or groups of deliveries if there are many. Returns the subjects whose events have deliveries.
 * Call it last in a transaction, because it locks the accounts' sequence numbers.
 */
export async function recordWebhookEvents(
  sql: Sql,
  events: readonly NewEvent[],
): Promise<ReadonlySet<string>> {
  if (events.length === 0) return new Set();
  // A separate statement, so that the next one sees endpoints enabled while this one waited for locks.
  const numbered = await sql<{ accountId: string; last: bigint }[]>`
    update accounts a set event_sequence = a.event_sequence + n.count
      from (select account_id, count(*) as count
              from ${unnest(sql, events)`account_id text`} group by account_id) n
     where a.id = n.account_id
    returning a.id as account_id, a.event_sequence - n.count as last`;
  const isBulk = new Set(events.map(({ subjectId }) => subjectId)).size >= deliveryGroupSize;
  const lastOf = new Map(numbered.map(({ accountId, last }) => [accountId, last]));
  const added = events.map((event) => {
    const sequence = exactlyOne(lastOf.get(event.accountId)) + 1n;
    lastOf.set(event.accountId, sequence);
    return { ...event, id: newId('event'), sequence };
  });
  const rows = await sql<{ subjectId: string }[]>`
    with added as (
      select * from ${unnest(sql, added)`
        id text, account_id text, sequence bigint, type text, subject_id text, facts json`}
    ), inserted as (
      insert into events (id, account_id, sequence, type, subject_id, facts)
      select id, account_id, sequence, type, subject_id, facts from added order by sequence
    ), wanted as materialized (
      select g.id, g.account_id, g.sequence, g.subject_id, w.id as endpoint_id, w.events,
             ${isBulk} and count(*) over (partition by w.id) >= ${deliveryGroupSize} as is_grouped
        from added g join webhook_endpoints w
          on w.account_id = g.account_id and w.status = 'enabled' and w.deleted_at is null
         and (g.type = any (w.events) or '*' = any (w.events))
    ), pending as (
      insert into deliveries (event_id, endpoint_id)
      select id, endpoint_id from wanted where not is_grouped
    ), grouped as (
      insert into delivery_groups (account_id, endpoint_id, types, first_sequence, last_sequence)
      select account_id, endpoint_id, events, min(sequence), max(sequence)
        from wanted where is_grouped
       group by account_id, endpoint_id, events, sequence / ${deliveryGroupSize}::int
       order by min(sequence)
    )
    select distinct subject_id from wanted`;
  return new Set(rows.map((row) => row.subjectId));
}

/** Columns of an event. They follow those of its payout, to override `id` and `account_id`. */
export const eventColumns = (sql: Sql) => sql`
  p.*, e.id, e.account_id, e.subject_id, e.type, e.sequence, e.facts, e.created_at`;

/** Joins an event's payout. The limit keeps the planner from joining whole tables. */
export const ofPayout = (sql: Sql) => sql`
  left join lateral (select * from payouts where id = e.subject_id limit 1) p on true`;

export type EventFilter = {
  readonly type?: EventType | undefined;
  /** The payout or batch that the event is about. */
  readonly subjectId?: string | undefined;
};

/** Lists a page of an account's events. */
export async function listEvents(
  sql: Sql,
  accountId: string,
  page: Page,
  { type, subjectId }: EventFilter,
): Promise<PageResult<EventRow>> {
  const types = type === undefined ? [...eventTypes] : [type];
  // The newest events overall are among the newest of each type, so one index serves both. A subject has
  // only a handful of events, which are found by its ID.
  const rows = await sql<EventRow[]>`
    select ${eventColumns(sql)} from (
      select n.* from unnest(${types}::text[]) t (type) cross join lateral (
        select * from events
         where account_id = ${accountId} and type = t.type
           and ${when(sql, subjectId, (wanted) => sql`subject_id = ${wanted}`)}
           and ${pageRows(sql, page, ['created_at', 'id'])}) n
       ${orderAndLimit(sql, page, ['n.created_at', 'n.id'])}) e ${ofPayout(sql)}
     ${orderAndLimit(sql, page, ['e.created_at', 'e.id'])}`;
  return toPage(page, rows);
}

/**
 * Returns the account's events after a sequence number, oldest first. Numbers are in commit order, so a
 * reader that continues from the last one misses none.
 */
export async function feedEvents(
  sql: Sql,
  accountId: string,
  after: bigint,
  limit: number,
): Promise<PageResult<EventRow>> {
  const rows = await sql<EventRow[]>`
    select ${eventColumns(sql)} from (
      select * from events where account_id = ${accountId} and sequence > ${after}
       order by sequence limit ${limit + 1}) e ${ofPayout(sql)}
     order by e.sequence`;
  return { rows: rows.slice(0, limit), hasMore: rows.length > limit };
}

/** Returns the last event's sequence number for each account, by account ID. Changes at commit. */
export async function lastSequences(
  sql: Sql,
  accountIds: readonly string[],
): Promise<ReadonlyMap<string, bigint>> {
  const rows = await sql<{ id: string; eventSequence: bigint }[]>`
    select id, event_sequence from accounts where id = any (${accountIds})`;
  return new Map(rows.map(({ id, eventSequence }) => [id, eventSequence]));
}

/** Finds an account's event by its ID. */
export async function findEvent(
  sql: Sql,
  accountId: string,
  id: string,
): Promise<EventRow | undefined> {
  const [row] = await sql<EventRow[]>`
    select ${eventColumns(sql)} from events e ${ofPayout(sql)}
     where e.id = ${id} and e.account_id = ${accountId}`;
  return row;
}
