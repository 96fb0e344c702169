-- Why: an event is written in the transaction that makes it true and is never changed; whether each
-- endpoint has received it is a row of its own, so that only what was not delivered is tried again,
-- and nothing is lost when a process dies between the two.

create table events (
  id text primary key check (id ~ '^evt_'),
  -- No foreign keys: it is written in the transaction that has just given it the account's next number
  -- and written the payout or the batch that it is about.
  account_id text not null,
  sequence bigint not null,
  type text not null,
  subject_id text not null,
  -- What had become of its subject, in the format of this number. What a payout was asked for and
  -- accepted with never changes, so only the rest of it is here, a tenth of what is shown; what is
  -- shown is made of both, so every attempt sends the same bytes. A batch is kept as it is shown.
  format smallint not null default 1,
  facts json not null,
  -- The account's number is locked by then, so the times follow the numbers.
  created_at timestamptz(3) not null default clock_timestamp(),
  unique (account_id, sequence),
  check (subject_id ~ case when type like 'batch.%' then '^bat_' else '^po_' end)
);
create index on events (subject_id);
create index events_by_type on events (account_id, type, created_at, id);
create trigger append_only before update or delete on events
  for each row execute function refuse_change();
create trigger append_only_all before truncate on events
  for each statement execute function refuse_change();
grant insert on events to corridor_worker;

create table webhook_endpoints (
  id text primary key check (id ~ '^we_'),
  account_id text not null references accounts,
  url text not null,
  events text[] not null,
  secret text not null,
  api_version text not null,
  status text not null default 'enabled' check (status in ('enabled', 'disabled')),
  status_reason text,
  created_at timestamptz(3) not null default now(),
  deleted_at timestamptz(3)
);
create index on webhook_endpoints (account_id, id) where deleted_at is null;
grant insert, update on webhook_endpoints to corridor_api;
grant update on webhook_endpoints to corridor_worker;

-- Kept for 30 days. Not in partitions, of which a month could be dropped: each statement is planned for
-- its values, and with five partitions planning made one that records a delivery take 1.6 times as
-- long, one for 250 of them 2.4 times. To delete a row costs 4 µs, with the vacuum that follows.
create table deliveries (
  -- No foreign keys: each statement that adds rows reads them from both tables, which lose none.
  event_id text not null,
  endpoint_id text not null,
  status text not null default 'pending'
    check (status in ('pending', 'delivered', 'exhausted', 'canceled')),
  attempts int not null default 0,
  -- The first attempt belongs to the process that wrote the event; if it was not made in 10 s it is due.
  next_attempt_at timestamptz(3) not null default now() + interval '10 seconds',
  last_attempt_at timestamptz(3),
  last_status int,
  last_error text,
  last_latency_ms int,
  primary key (event_id, endpoint_id)
);
-- What is overdue is asked endpoint by endpoint, so one index serves that as well.
create index on deliveries (endpoint_id, next_attempt_at) where status = 'pending';
grant update on deliveries to corridor_api;
grant insert, update, delete on deliveries to corridor_worker;

-- First attempts at the events of many payouts that one transaction has moved. As rows of their own they
-- would be written when they are announced, claimed and recorded. A group stands for pending
-- deliveries of up to 50 events at an endpoint, those of its types within a range of numbers: it is
-- claimed once, what comes of each attempt is a row that is written once, and what has none when the
-- group ends becomes a pending delivery like any other.
create table delivery_groups (
  id bigint generated always as identity primary key,
  account_id text not null,
  endpoint_id text not null references webhook_endpoints deferrable,
  -- What the endpoint subscribed to at the time.
  types text[] not null,
  first_sequence bigint not null,
  last_sequence bigint not null,
  -- As those of deliveries. A claim moves it to the end of its lease; what is overdue ends.
  next_attempt_at timestamptz(3) not null default now() + interval '10 seconds',
  claimed_at timestamptz(3)
);
create index on delivery_groups (account_id, first_sequence);
create index on delivery_groups (endpoint_id, id);
create index on delivery_groups (next_attempt_at);
grant insert, update, delete on delivery_groups to corridor_worker;

-- Ends groups: what was not recorded becomes a row, as it was claimed, or as if it had not been and due
-- at once. Returns how many. Locked in one order, so that two of these cannot wait for each other.
create function end_delivery_groups(ended bigint[], became text, is_unclaimed boolean) returns int
language sql security definer set search_path = pg_catalog, public, pg_temp as $$
  with gone as (
    delete from delivery_groups
     where id in (select id from delivery_groups where id = any (ended) order by id for update)
    returning *
  ), written as (
    insert into deliveries (event_id, endpoint_id, status, attempts, last_attempt_at, next_attempt_at)
    select e.id, g.endpoint_id, became,
           case when is_unclaimed or g.claimed_at is null then 0 else 1 end,
           case when not is_unclaimed then g.claimed_at end,
           case when is_unclaimed then now() else g.next_attempt_at end
      from gone g cross join lateral (
        select id from events
         where account_id = g.account_id and sequence between g.first_sequence and g.last_sequence
           and (type = any (g.types) or '*' = any (g.types)) offset 0) e
    on conflict do nothing
    returning 1
  )
  select count(*)::int from written
$$;
revoke execute on function end_delivery_groups(bigint[], text, boolean) from public;
grant execute on function end_delivery_groups(bigint[], text, boolean) to corridor_api, corridor_worker;

-- Like its other pending deliveries, those of an endpoint that is disabled or deleted are canceled.
create function cancel_delivery_groups() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  perform end_delivery_groups(
    array(select id from delivery_groups where endpoint_id = new.id), 'canceled', false);
  return null;
end $$;
create trigger cancels_groups after update of status, deleted_at on webhook_endpoints for each row
  when (old.status = 'enabled' and old.deleted_at is null
    and (new.status <> 'enabled' or new.deleted_at is not null))
  execute function cancel_delivery_groups();
