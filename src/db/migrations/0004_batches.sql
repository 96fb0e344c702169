-- Why: a batch is up to 10,000 payouts that were requested at once. Its items are payouts like any
-- other; the batch adds their order, the rates they share, and a count of the items that are not
-- final, so that exactly one transaction completes it. The workflow of a chunk moves 500 of them
-- together, so that a hundredth of the workflows move as many payouts.

create table batches (
  id text primary key check (id ~ '^bat_'),
  account_id text not null references accounts,
  status text not null default 'processing'
    check (status in ('processing', 'completed', 'canceled')),
  mode text not null default 'best_effort' check (mode in ('best_effort', 'all_or_nothing')),
  -- Of the batch as a whole; null until an all-or-nothing batch is decided.
  outcome text default 'accepted' check (outcome in ('accepted', 'refused')),
  total int not null check (total between 1 and 10000),
  -- Items that are not final; the statement that sets it to zero completes the batch. A batch that
  -- only refers to payouts of others has none from the beginning.
  open int not null check (open between 0 and total),
  -- The rates of every currency at the request: one rate a corridor for the whole batch.
  rates jsonb not null,
  created_at timestamptz(3) not null default now(),
  paused_at timestamptz(3),
  canceled_at timestamptz(3),
  completed_at timestamptz(3),
  check (status = 'processing' or open = 0),
  check (status <> 'canceled' or canceled_at is not null),
  check (outcome = 'accepted' or mode = 'all_or_nothing'),
  check ((completed_at is null) = (status = 'processing'))
);
create index batches_list on batches (account_id, status, created_at, id);
create index on batches (created_at) where status = 'processing';
grant insert, update (canceled_at) on batches to corridor_api;
grant update (status, outcome, open, paused_at, canceled_at, completed_at)
  on batches to corridor_worker;
grant update (paused_at) on batches to corridor_operator;

create table batch_chunks (
  batch_id text not null references batches,
  number int not null,
  -- Its workflow has ended or sleeps: a process that has news for an item wakes it and clears this.
  waiting boolean not null default false,
  -- When its workflow must have looked again; the sweep wakes what is overdue.
  wake_at timestamptz(3),
  primary key (batch_id, number)
);
create index on batch_chunks (wake_at) where wake_at is not null;
grant insert, update on batch_chunks to corridor_api;
grant update on batch_chunks to corridor_worker;
