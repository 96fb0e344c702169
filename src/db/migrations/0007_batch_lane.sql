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

create index on batches (created_at) where status = 'processing';

-- The accounts and entries of postings are checked for a statement's postings at once, like
-- their balance: two foreign keys row by row cost more than the rest of a posting. Neither
-- can go away afterwards: entries are append-only, and from now on accounts are as well.
create trigger append_only before update or delete on ledger_accounts
  for each row execute function refuse_change();
create trigger append_only_all before truncate on ledger_accounts
  for each statement execute function refuse_change();

alter table ledger_postings
  drop constraint ledger_postings_entry_id_fkey,
  drop constraint ledger_postings_ledger_account_id_currency_fkey;

create or replace function apply_postings() returns trigger language plpgsql as $$
declare
  unbalanced record;
begin
  -- Subqueries that cannot become joins: a join would be planned for the tables as wholes.
  if exists (select from (select distinct entry_id from added) a
              where (select e.id from ledger_entries e where e.id = a.entry_id) is null) then
    raise foreign_key_violation using message = 'a posting names no entry';
  end if;
  if exists (select from (select distinct ledger_account_id, currency from added) a
              where (select l.id from ledger_accounts l where l.id = a.ledger_account_id
                        and l.currency = a.currency) is null) then
    raise foreign_key_violation using message = 'a posting names no account of its currency';
  end if;
  select entry_id, currency, sum(amount_minor) as difference into unbalanced
    from added group by entry_id, currency having sum(amount_minor) <> 0 limit 1;
  if found then
    raise exception 'entry % does not balance: % is off by %',
      unbalanced.entry_id, unbalanced.currency, unbalanced.difference;
  end if;

  -- Balances are locked in the order of their ids, so that two postings cannot wait
  -- for each other.
  perform 1 from ledger_balances
    where ledger_account_id in (select ledger_account_id from added)
    order by ledger_account_id for no key update;
  update ledger_balances b set amount_minor = b.amount_minor + a.amount_minor
    from (select ledger_account_id, sum(amount_minor)::bigint as amount_minor
            from added group by ledger_account_id) a
    where b.ledger_account_id = a.ledger_account_id;
  return null;
end $$;

-- A transaction that writes thousands of rows has its keys checked at its end (bulkTransaction
-- in db/client.ts); every other one still after each statement.
alter table payouts alter constraint payouts_account_id_mode_fkey deferrable;
alter table payouts alter constraint payouts_batch_id_fkey deferrable;
alter table ledger_entries alter constraint ledger_entries_payout_id_fkey deferrable;
alter table rail_inbox alter constraint rail_inbox_payout_id_fkey deferrable;
alter table events alter constraint events_account_id_fkey deferrable;
alter table events alter constraint events_payout_id_fkey deferrable;
alter table deliveries alter constraint deliveries_event_id_fkey deferrable;
alter table deliveries alter constraint deliveries_endpoint_id_fkey deferrable;
-- Run for every row: its one query is planned once.
alter function record_status() set plan_cache_mode = 'force_generic_plan';

-- What is overdue is asked endpoint by endpoint: one index less to write three times a delivery.
drop index deliveries_next_attempt_at_idx;

