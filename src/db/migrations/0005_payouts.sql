-- Why: a payout's row is the truth about it; its workflow only moves it. The row therefore keeps what
-- was requested, what was frozen when it was accepted, which workflow may move it (driver), and every
-- status it had; which moves exist is data that the database checks.

create table beneficiaries (
  id text primary key check (id ~ '^bnf_'),
  account_id text not null references accounts,
  -- The validated details. They are never edited, so that a payout keeps naming the bank account it
  -- was requested for; a deleted beneficiary is only hidden.
  details jsonb not null,
  currency text not null,
  created_at timestamptz(3) not null default now(),
  deleted_at timestamptz(3)
);
-- They change rarely, so each filter of their list has an index.
create index beneficiaries_list on beneficiaries (account_id, created_at, id)
  where deleted_at is null;
create index beneficiaries_by_currency on beneficiaries (account_id, currency, created_at, id)
  where deleted_at is null;
grant insert, update (deleted_at) on beneficiaries to corridor_api;
-- Only to lock a beneficiary against its deletion: a role that may update no column may lock no row.
grant update (deleted_at) on beneficiaries to corridor_worker;

create table payout_moves (
  from_status text not null,
  to_status text not null,
  primary key (from_status, to_status)
);
insert into payout_moves values
  ('pending', 'processing'), ('pending', 'failed'), ('pending', 'canceled'),
  ('processing', 'sent'), ('processing', 'failed'), ('processing', 'canceled'),
  ('sent', 'settled'), ('sent', 'failed'), ('sent', 'returned'),
  ('settled', 'returned');

create table payouts (
  id text primary key check (id ~ '^po_'),
  account_id text not null,
  mode text not null,
  status text not null default 'pending' check (status in
    ('pending', 'processing', 'sent', 'settled', 'failed', 'canceled', 'returned')),
  status_reason text,
  -- Since when it has, or had, each status. It is pending since its request, has each once, and the
  -- reason is that of its present one, so together they are its history.
  processing_since timestamptz(3),
  sent_since timestamptz(3),
  settled_since timestamptz(3),
  failed_since timestamptz(3),
  canceled_since timestamptz(3),
  returned_since timestamptz(3),
  -- The workflow that may move the row; of two drivers one loses.
  driver text not null,
  -- When its driver must have touched the row again; the sweep wakes what is overdue.
  wake_at timestamptz(3),

  -- What was requested, as it was requested: an id that does not exist is a refusal, so the first
  -- two are no foreign keys.
  quote_id text,
  beneficiary_id text not null,
  source_currency text,
  destination_currency text,
  fixed_side text check (fixed_side in ('source', 'destination')),
  amount bigint,
  reference text,
  metadata jsonb not null default '{}',
  batch_id text references batches deferrable,
  batch_index int,
  requested_at timestamptz(3) not null default now(),

  -- Everything the payout will ever post, frozen when it is accepted.
  source_minor bigint,
  fee_minor bigint,
  net_minor bigint,
  receive_minor bigint,
  mid_value_minor bigint,
  rate numeric,
  mid numeric,
  -- The rates of both currencies: from their figures anyone can compute the mid rate again. No
  -- foreign keys: rates are never deleted, and every payout would lock the same few rows.
  rate_provider text,
  rate_as_of timestamptz(3),
  source_rate_id bigint,
  destination_rate_id bigint,
  rail text,
  settle_by timestamptz(3),
  refusal jsonb,

  -- The first and the last time the order may have been sent: the rail's time to settle counts from
  -- the last, and a hold is released only on proof that covers it.
  submit_started_at timestamptz(3),
  last_sent_at timestamptz(3),
  -- The end that a void begun at the rail leads to, written before the rail is asked, so that each
  -- process that sees the void writes the same end; cleared when the rail answers that it is too late.
  void_intent text check (void_intent in ('canceled', 'failed')),
  rail_reference text,
  settled_at timestamptz(3),
  returned_minor bigint,
  -- The rows of rail_inbox that have moved it. The move writes this row in any case, so they need no
  -- version of their own to be marked as applied.
  applied_facts bigint[],

  attention_reason text,
  attention_detail text,
  attention_at timestamptz(3),

  foreign key (account_id, mode) references accounts (id, mode) deferrable,
  check ((batch_id is null) = (batch_index is null)),
  -- A payout is pending or accepted, and the code reads it as one of the two.
  check (num_nonnulls(source_minor, fee_minor, net_minor, receive_minor, mid_value_minor, rate, mid)
      in (0, 7)
    and (source_minor is null or (source_currency is not null and destination_currency is not null))),
  check (source_minor = fee_minor + net_minor),
  check (status in ('pending', 'failed', 'canceled') or (source_minor > 0 and rail is not null)),
  -- A test account reaches only the sandbox bank, a live one never does.
  check (rail is null or (rail = 'sandbox') = (mode = 'test')),
  check ((settled_at is not null) or status <> 'settled'),
  check ((attention_reason is null) = (attention_at is null))
-- A payout is updated four times within seconds. With room on its page the updates that change no index
-- ("heap only") write none, and what they leave behind is reused before any vacuum.
) with (fillfactor = 50);
-- An index on payouts is written up to five times for each of them: with each status, and each step of
-- a single payout moves wake_at. Measured with 1,000,000 payouts, one index adds 10 % to what the
-- database does for a batch of 10,000, and one a filter adds 85 %. So status is in the one that lists
-- them (a list of all is merged from the seven statuses), and payout_terms serves the other filters.
create index payouts_list on payouts (account_id, status, requested_at, id);
create index on payouts (wake_at) where wake_at is not null;
create index on payouts (attention_at) where attention_at is not null;
create unique index on payouts (batch_id, batch_index) where batch_id is not null;

-- The API inserts a payout without what only its decision and its moves write.
grant insert (id, account_id, mode, driver, wake_at, quote_id, beneficiary_id, source_currency,
  destination_currency, fixed_side, amount, reference, metadata, batch_id, batch_index, refusal)
  on payouts to corridor_api;
grant update (driver, wake_at) on payouts to corridor_api, corridor_operator;
grant update (status, status_reason, driver, wake_at, source_currency, destination_currency,
  fixed_side, amount, source_minor, fee_minor, net_minor, receive_minor, mid_value_minor, rate, mid,
  rate_provider, rate_as_of, source_rate_id, destination_rate_id, rail, settle_by, refusal,
  submit_started_at, last_sent_at, void_intent, rail_reference, settled_at, returned_minor,
  applied_facts, attention_reason, attention_detail, attention_at) on payouts to corridor_worker;

-- The times are written here, so that no code path can change a status without a record. A time is
-- when the row is written, not when the transaction began: one that waited for a lock would
-- otherwise write a time before that of the process it waited for. And it is never before the last
-- one, should the clock be set back. The one query is planned once, as this runs for every row.
create function record_status() returns trigger language plpgsql
set plan_cache_mode = 'force_generic_plan' set search_path = pg_catalog, public, pg_temp as $$
declare
  -- Nulls do not count.
  since timestamptz(3) := greatest(clock_timestamp(), old.requested_at, old.processing_since,
    old.sent_since, old.settled_since);
begin
  if not exists (select from payout_moves
          where from_status = old.status and to_status = new.status) then
    raise exception 'payout %: no move from % to %', old.id, old.status, new.status;
  end if;
  case new.status
    when 'processing' then new.processing_since := since;
    when 'sent' then new.sent_since := since;
    when 'settled' then new.settled_since := since;
    when 'failed' then new.failed_since := since;
    when 'canceled' then new.canceled_since := since;
    when 'returned' then new.returned_since := since;
  end case;
  return new;
end $$;
create trigger record_status before update of status on payouts
  for each row when (old.status is distinct from new.status) execute function record_status();
create trigger begins_as_pending before insert on payouts
  for each row when (new.status <> 'pending')
  execute function refuse_edit('a payout begins as pending');
create trigger history before update of processing_since, sent_since, settled_since,
    failed_since, canceled_since, returned_since on payouts
  for each statement execute function refuse_edit('the history of a payout is written by its moves');

create trigger reason before update of status_reason on payouts for each row
  when (old.status = new.status and old.status_reason is distinct from new.status_reason)
  execute function refuse_edit('the history of a payout is written by its moves');

create trigger applied before update of applied_facts on payouts for each row
  when (old.applied_facts is not null
    and not coalesce(new.applied_facts @> old.applied_facts, false))
  execute function refuse_edit('a fact that was applied stays applied');

-- What was requested never changes. Triggers on columns that no statement of ours names cost nothing.
create trigger asked before update of id, account_id, mode, quote_id, beneficiary_id, reference,
    metadata, batch_id, batch_index on payouts
  for each statement execute function refuse_edit('what was asked of a payout is frozen');
-- The decision fills in what a quote implies, and changes nothing that was requested.
create trigger asked_amount before update of amount, fixed_side on payouts
  for each row when ((old.amount is not null and old.amount is distinct from new.amount)
    or (old.fixed_side is not null and old.fixed_side is distinct from new.fixed_side))
  execute function refuse_edit('what was asked of a payout is frozen');

-- What was frozen stays frozen, and no payout is ever deleted.
create function refuse_repricing() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  raise exception 'payout %: the amounts were frozen when it was accepted', old.id;
end $$;
create trigger frozen before update on payouts for each row
  when (old.source_minor is not null and
    (old.account_id, old.source_currency, old.destination_currency, old.source_minor,
     old.fee_minor, old.receive_minor, old.mid_value_minor, old.rate, old.mid, old.rail,
     old.beneficiary_id, old.rate_provider, old.rate_as_of, old.source_rate_id,
     old.destination_rate_id) is distinct from
    (new.account_id, new.source_currency, new.destination_currency, new.source_minor,
     new.fee_minor, new.receive_minor, new.mid_value_minor, new.rate, new.mid, new.rail,
     new.beneficiary_id, new.rate_provider, new.rate_as_of, new.source_rate_id,
     new.destination_rate_id))
  execute function refuse_repricing();
create trigger kept before delete on payouts for each row execute function refuse_change();

-- What a payout can be found by: one row, written once, with an index a filter. A row a filter wrote
-- twice as much. Digests, as a text may be longer than an index entry; what is found is compared with
-- the payout itself. No foreign key: payouts are never deleted, and checking it would cost as much as
-- the row.
create table payout_terms (
  payout_id text not null,
  requested_at timestamptz(3) not null,
  beneficiary uuid not null,
  source_currency uuid,
  destination_currency uuid,
  reference uuid,
  batch uuid,
  primary key (beneficiary, requested_at, payout_id)
);
create index on payout_terms (source_currency, requested_at, payout_id)
  where source_currency is not null;
create index on payout_terms (destination_currency, requested_at, payout_id)
  where destination_currency is not null;
create index on payout_terms (reference, requested_at, payout_id) where reference is not null;
create index on payout_terms (batch, requested_at, payout_id) where batch is not null;
grant insert on payout_terms to corridor_api;
grant update (source_currency, destination_currency) on payout_terms to corridor_worker;

-- Of metadata a payout has as many as its caller wants: a row each.
create table payout_metadata_terms (
  term uuid not null,
  requested_at timestamptz(3) not null,
  payout_id text not null,
  primary key (term, requested_at, payout_id)
);
grant insert on payout_metadata_terms to corridor_api;

-- Null of a null.
create function payout_term(account_id text, name text, value text) returns uuid
language sql immutable as $$
  select md5(account_id || E'\n' || name || E'\n' || value)::uuid
$$;

create function put_terms() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  insert into payout_terms (payout_id, requested_at, beneficiary, source_currency,
                            destination_currency, reference, batch)
    select id, requested_at, payout_term(account_id, 'beneficiary', beneficiary_id),
           payout_term(account_id, 'source_currency', source_currency),
           payout_term(account_id, 'destination_currency', destination_currency),
           payout_term(account_id, 'reference', reference), payout_term(account_id, 'batch', batch_id)
      from added;
  insert into payout_metadata_terms
    select payout_term(p.account_id, 'metadata ' || m.key, m.value), p.requested_at, p.id
      from added p cross join lateral jsonb_each_text(p.metadata) m
     where p.metadata <> '{}';
  return null;
end $$;
create trigger terms after insert on payouts
  referencing new table as added for each statement execute function put_terms();

-- A currency that the decision has found out.
create function put_currencies() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  update payout_terms
     set source_currency = payout_term(new.account_id, 'source_currency', new.source_currency),
         destination_currency =
           payout_term(new.account_id, 'destination_currency', new.destination_currency)
   where beneficiary = payout_term(new.account_id, 'beneficiary', new.beneficiary_id)
     and requested_at = new.requested_at and payout_id = new.id;
  return null;
end $$;
create trigger currencies after update of source_currency, destination_currency on payouts
  for each row when ((old.source_currency, old.destination_currency)
    is distinct from (new.source_currency, new.destination_currency))
  execute function put_currencies();

-- An item of a batch whose idempotency key had created a payout before refers to that one.
create table batch_references (
  batch_id text not null references batches,
  batch_index int not null,
  payout_id text not null references payouts,
  primary key (batch_id, batch_index)
);
grant insert on batch_references to corridor_api;
