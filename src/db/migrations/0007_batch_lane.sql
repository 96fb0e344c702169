-- Why: a payout of a batch is carried together with 499 others by the workflow of their chunk,
-- so a hundredth of the workflows move as many payouts. The chunk's row says whether anybody
-- is looking after it: only then must a callback or the sweep wake its workflow.

create table batch_chunks (
  batch_id text not null references batches,
  number int not null,
  -- Nobody is looking: whoever has news wakes the workflow, and says so by flipping this.
  waiting boolean not null default false,
  -- When somebody must have looked again; the sweep wakes what is overdue.
  wake_at timestamptz(3),
  primary key (batch_id, number)
);
create index on batch_chunks (wake_at) where wake_at is not null;

-- An item whose idempotency key had made a payout before refers to that one.
create table batch_references (
  batch_id text not null references batches,
  batch_index int not null,
  payout_id text not null references payouts,
  primary key (batch_id, batch_index)
);

alter table batches
  add mode text not null default 'best_effort' check (mode in ('best_effort', 'all_or_nothing')),
  -- Of the batch as a whole; null until an all-or-nothing batch is decided.
  add outcome text default 'accepted' check (outcome in ('accepted', 'refused')),
  add paused_at timestamptz(3),
  add canceled_at timestamptz(3),
  drop constraint batches_status_check,
  drop constraint batches_check1;

-- Nothing is open in a batch that only refers to payouts of others, even before it is looked at.
alter table batches
  add check (status in ('processing', 'completed', 'canceled')),
  add check (status = 'processing' or open = 0),
  add check (status <> 'canceled' or canceled_at is not null),
  add check (outcome = 'accepted' or mode = 'all_or_nothing');
