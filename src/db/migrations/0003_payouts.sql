-- Why: a payout's row is the truth about it, and its workflow only the hand that moves
-- it. The row therefore keeps what was asked, what was frozen when it was accepted, who
-- may move it (driver), and every status it had; which moves exist is data that the
-- database checks.

create table rates (
  currency text primary key,
  -- Units of the currency for one euro, exact.
  per_euro numeric not null check (per_euro > 0),
  provider text not null,
  as_of timestamptz(3) not null
);

create table beneficiaries (
  id text primary key check (id ~ '^bnf_'),
  account_id text not null references accounts,
  -- The validated details. They are never edited: a payout keeps meaning the account
  -- it was made to, and a deleted beneficiary is only hidden.
  details jsonb not null,
  currency text not null,
  created_at timestamptz(3) not null default now(),
  deleted_at timestamptz(3)
);
create index on beneficiaries (account_id, id);

create table quotes (
  id text primary key check (id ~ '^qt_'),
  account_id text not null references accounts,
  source_currency text not null,
  destination_currency text not null,
  fixed_side text not null check (fixed_side in ('source', 'destination')),
  amount bigint not null,
  source_minor bigint not null check (source_minor > 0),
  fee_minor bigint not null check (fee_minor >= 0),
  net_minor bigint not null check (net_minor > 0),
  receive_minor bigint not null check (receive_minor > 0),
  mid_value_minor bigint not null,
  rate numeric not null,
  mid numeric not null,
  rate_provider text not null,
  rate_as_of timestamptz(3) not null,
  created_at timestamptz(3) not null default now(),
  expires_at timestamptz(3) not null,
  used_by text unique,
  -- The specification's hold time.
  check (expires_at = created_at + interval '30 seconds'),
  check (source_minor = fee_minor + net_minor)
);
create index on quotes (account_id, id);

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
  status_history jsonb not null default '[]',
  -- The workflow that may move the row; of two drivers one loses.
  driver text not null,
  -- When somebody must have touched the row again; the sweep wakes what is overdue.
  wake_at timestamptz(3),

  -- What was asked, as it was asked: an id that does not exist is a refusal, so these
  -- two are no foreign keys.
  quote_id text,
  beneficiary_id text not null,
  source_currency text,
  destination_currency text,
  fixed_side text check (fixed_side in ('source', 'destination')),
  amount bigint,
  reference text,
  metadata jsonb not null default '{}',
  requested_at timestamptz(3) not null default now(),

  -- Everything the payout will ever post, frozen when it is accepted.
  source_minor bigint,
  fee_minor bigint,
  net_minor bigint,
  receive_minor bigint,
  mid_value_minor bigint,
  rate numeric,
  mid numeric,
  rail text,
  settle_by timestamptz(3),
  refusal jsonb,

  submit_started_at timestamptz(3),
  rail_reference text,
  settled_at timestamptz(3),
  returned_minor bigint,

  attention_reason text,
  attention_detail text,
  attention_at timestamptz(3),

  foreign key (account_id, mode) references accounts (id, mode),
  -- A test account reaches only the sandbox bank, a live one never does.
  check (rail is null or (rail = 'sandbox') = (mode = 'test')),
  check (status in ('pending', 'failed', 'canceled') or (source_minor > 0 and rail is not null)),
  check (source_minor = fee_minor + net_minor),
  check ((settled_at is not null) or status <> 'settled'),
  check ((attention_reason is null) = (attention_at is null))
);
create index on payouts (account_id, id);
create index on payouts (wake_at) where wake_at is not null;
create index on payouts (attention_at) where attention_at is not null;

alter table quotes add foreign key (used_by) references payouts;
alter table ledger_entries add foreign key (payout_id) references payouts;

-- The history is written here, so that no code path can change a status in silence.
create function record_status() returns trigger language plpgsql as $$
begin
  if tg_op = 'INSERT' then
    if new.status <> 'pending' then
      raise exception 'a payout begins as pending, not %', new.status;
    end if;
  elsif not exists (select from payout_moves
          where from_status = old.status and to_status = new.status) then
    raise exception 'payout %: no move from % to %', old.id, old.status, new.status;
  end if;
  new.status_history := new.status_history || jsonb_build_object('status', new.status,
    'at', to_char(now()::timestamptz(3) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
    'reason', new.status_reason);
  return new;
end $$;
create trigger record_new_status before insert on payouts
  for each row execute function record_status();
create trigger record_next_status before update of status on payouts
  for each row when (old.status is distinct from new.status) execute function record_status();

-- What was frozen stays frozen, and no payout is ever deleted.
create function refuse_thaw() returns trigger language plpgsql as $$
begin
  raise exception 'payout %: the amounts were frozen when it was accepted', old.id;
end $$;
create trigger frozen before update on payouts for each row
  when (old.source_minor is not null and
    (old.account_id, old.source_currency, old.destination_currency, old.source_minor,
     old.fee_minor, old.receive_minor, old.mid_value_minor, old.rate, old.mid, old.rail,
     old.beneficiary_id) is distinct from
    (new.account_id, new.source_currency, new.destination_currency, new.source_minor,
     new.fee_minor, new.receive_minor, new.mid_value_minor, new.rate, new.mid, new.rail,
     new.beneficiary_id))
  execute function refuse_thaw();
create trigger kept before delete on payouts for each row execute function refuse_change();

-- What a rail told us, kept before anybody is woken. Order and duplicates do not matter.
create table rail_inbox (
  id bigint generated always as identity primary key,
  rail text not null,
  rail_event_id text not null,
  rail_key text not null,
  -- Null when the rail speaks of a key that we never gave it.
  payout_id text references payouts,
  fact jsonb not null,
  received_at timestamptz(3) not null default now(),
  applied_at timestamptz(3),
  outcome text,
  unique (rail, rail_event_id)
);
create index on rail_inbox (payout_id) where applied_at is null;
