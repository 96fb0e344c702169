import { type EventType, eventTypes } from '../domain/event.js';
import { jsonTexts, oneOf, ownedIn, type Sql, when } from './client.js';
import { newId } from './id.js';
import { orderAndLimit, type Page, type PageResult, pageRows, toPage } from './page.js';

export type NewEvent = {
  readonly accountId: string;
  readonly type: EventType;
  /** The id of the payout or batch that it is about. */
  readonly subjectId: string;
  /** The object as it is in this transaction, in the newest shape. */
  readonly data: object;
};

export type EventRow = {
  readonly id: string;
  readonly accountId: string;
  readonly sequence: bigint;
  readonly type: EventType;
  readonly data: Record<string, unknown>;
  readonly createdAt: Date;
};

/**
 * Writes events with the next numbers of their accounts, and a delivery for each endpoint
 * that subscribes to it. Returns the subjects whose events have deliveries. It locks the accounts'
 * numbers, so it is the last statement of a transaction.
 */
export async function recordWebhookEvents(
  sql: Sql,
  events: readonly NewEvent[],
): Promise<ReadonlySet<string>> {
  if (events.length === 0) return new Set();
  const rows = await sql<{ subjectId: string }[]>`
    with added as (
      select *
        from unnest(${events.map(() => newId('event'))}::text[],
                    ${events.map((event) => event.accountId)}::text[],
                    ${events.map((event) => event.type)}::text[],
                    ${events.map((event) => event.subjectId)}::text[],
                    ${jsonTexts(
                      sql,
                      events.map((event) => event.data),
                    )})
               with ordinality as t (id, account_id, type, subject_id, data, position)
    ), numbered as (
      update accounts a set event_sequence = a.event_sequence + n.count
        from (select account_id, count(*) as count from added group by account_id) n
       where a.id = n.account_id
      returning a.id as account_id, a.event_sequence - n.count as base
    ), inserted as (
      insert into events (id, account_id, sequence, type, subject_id, data)
      select g.id, g.account_id,
             n.base + row_number() over (partition by g.account_id order by g.position),
             g.type, g.subject_id, g.data::json
        from added g join numbered n using (account_id)
    ), pending as (
      insert into deliveries (event_id, endpoint_id)
      select g.id, w.id from added g join webhook_endpoints w
          on w.account_id = g.account_id and w.status = 'enabled' and w.deleted_at is null
         and (g.type = any (w.events) or '*' = any (w.events))
      returning event_id
    )
    select distinct g.subject_id from pending d join added g on g.id = d.event_id`;
  return new Set(rows.map((row) => row.subjectId));
}

const columns = (sql: Sql) => sql`id, account_id, sequence, type, data, created_at`;

export type EventFilter = {
  readonly type?: EventType | undefined;
  /** The payout or batch that it is about. */
  readonly subjectId?: string | undefined;
};

/** A page of an account's events. */
export async function listEvents(
  sql: Sql,
  accountId: string,
  page: Page,
  { type, subjectId }: EventFilter,
): Promise<PageResult<EventRow>> {
  const types = type === undefined ? [...eventTypes] : [type];
  // The newest of each type are among the newest of all: one index serves both. A subject has a
  // handful of events, which are found by it.
  const rows = await sql<EventRow[]>`
    select e.* from unnest(${types}::text[]) t (type) cross join lateral (
      select ${columns(sql)} from events
       where account_id = ${accountId} and type = t.type
         and ${when(sql, subjectId, (wanted) => sql`subject_id = ${wanted}`)}
         and ${pageRows(sql, page, ['created_at', 'id'])}) e
     ${orderAndLimit(sql, page, ['e.created_at', 'e.id'])}`;
  return toPage(page, rows);
}

/**
 * The account's events after a number, oldest first: numbers follow the order of the
 * commits, so a reader that goes on from the last one misses none.
 */
export async function feedEvents(
  sql: Sql,
  accountId: string,
  after: bigint,
  limit: number,
): Promise<PageResult<EventRow>> {
  const rows = await sql<EventRow[]>`
    select ${columns(sql)} from events
     where account_id = ${accountId} and sequence > ${after}
     order by sequence limit ${limit + 1}`;
  return { rows: rows.slice(0, limit), hasMore: rows.length > limit };
}

export const findEvent = oneOf(ownedIn<EventRow>('events', columns));
