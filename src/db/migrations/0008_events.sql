-- Why: an event is written in the transaction that makes it true and is never changed; whether each
-- endpoint has received it is a row of its own, so that only what was not delivered is tried again,
-- and nothing is lost when a process dies between the two.

create table events (
  id text primary key check (id ~ '^evt_'),
  account_id text not null references accounts deferrable,
  sequence bigint not null,
  type text not null,
  -- The payout or the batch that it is about. It is written in the transaction that has just written
  -- its subject, so a foreign key would prove nothing more.
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
  event_id text not null references events deferrable,
  endpoint_id text not null references webhook_endpoints deferrable,
  status text not null default 'pending'
    check (status in ('pending', 'delivered', 'exhausted', 'canceled')),
  attempts int not null default 0,
  -- The first attempt belongs to the process that wrote the event; if it was not made in 10 s it is due.
  next_attempt_at timestamptz(3) not null default now() + interval '10 seconds',
  last_attempt_at timestamptz(3),
  last_status int,
  last_error text,
  primary key (event_id, endpoint_id)
);
-- What is overdue is asked endpoint by endpoint, so one index serves that as well.
create index on deliveries (endpoint_id, next_attempt_at) where status = 'pending';
grant update on deliveries to corridor_api;
grant insert, update, delete on deliveries to corridor_worker;
