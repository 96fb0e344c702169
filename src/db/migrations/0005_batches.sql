-- Why: a batch is thousands of payouts that were asked for at once. Its items are payouts
-- like any other; the batch adds their order, the rates they share, and a count of what is
-- still open, so that exactly one transaction is the one that completes it.

create table batches (
  id text primary key check (id ~ '^bat_'),
  account_id text not null references accounts,
  status text not null default 'processing' check (status in ('processing', 'completed')),
  total int not null check (total between 1 and 10000),
  -- Items that are not final; the statement that takes it to zero completes the batch.
  open int not null check (open between 0 and total),
  -- The rates of every currency at the request: one rate a corridor for the whole batch.
  rates jsonb not null,
  created_at timestamptz(3) not null default now(),
  completed_at timestamptz(3),
  check ((open = 0) = (status = 'completed')),
  check ((completed_at is null) = (status = 'processing'))
);
create index on batches (account_id, id);

alter table payouts add batch_id text references batches, add batch_index int,
  add check ((batch_id is null) = (batch_index is null));
create unique index on payouts (batch_id, batch_index) where batch_id is not null;
