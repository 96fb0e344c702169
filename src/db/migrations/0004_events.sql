-- Why: an event is written in the transaction that makes it true and is never changed;
-- whether each endpoint has it is a row of its own, so that only what was not delivered
-- is tried again, and nothing is lost when a process dies between the two.

create table events (
  id text primary key check (id ~ '^evt_'),
  account_id text not null references accounts,
  sequence bigint not null,
  type text not null,
  payout_id text references payouts,
  -- The object as it was, in the newest shape. json, not jsonb: the same bytes each time.
  data json not null,
  created_at timestamptz(3) not null default now(),
  unique (account_id, sequence)
);
create index on events (payout_id);
create trigger append_only before update or delete on events
  for each row execute function refuse_change();
create trigger append_only_all before truncate on events
  for each statement execute function refuse_change();

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

create table deliveries (
  event_id text not null references events,
  endpoint_id text not null references webhook_endpoints,
  status text not null default 'pending'
    check (status in ('pending', 'delivered', 'exhausted', 'canceled')),
  attempts int not null default 0,
  -- The first attempt belongs to the payout's workflow; what it has not made in 30 s is due.
  next_attempt_at timestamptz(3) not null default now() + interval '30 seconds',
  last_attempt_at timestamptz(3),
  last_status int,
  last_error text,
  primary key (event_id, endpoint_id)
);
create index on deliveries (endpoint_id, next_attempt_at) where status = 'pending';
create index on deliveries (next_attempt_at) where status = 'pending';
