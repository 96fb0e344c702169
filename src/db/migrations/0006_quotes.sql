-- Why: a quote promises a price for 30 seconds, and one payout may use it.

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
  source_rate_id bigint,
  destination_rate_id bigint,
  created_at timestamptz(3) not null default now(),
  expires_at timestamptz(3) not null,
  used_by text unique references payouts,
  -- The specification's hold time.
  check (expires_at = created_at + interval '30 seconds'),
  check (source_minor = fee_minor + net_minor)
);
create index on quotes (account_id, id);
create trigger priced before update of id, account_id, source_currency, destination_currency,
    fixed_side, amount, source_minor, fee_minor, net_minor, receive_minor, mid_value_minor, rate,
    mid, rate_provider, rate_as_of, source_rate_id, destination_rate_id on quotes
  for each statement execute function refuse_edit('a quote keeps what it was priced with');
create trigger used_once before update of used_by on quotes
  for each row when (old.used_by is not null and old.used_by is distinct from new.used_by)
  execute function refuse_edit('a quote is used once');
grant insert on quotes to corridor_api;
grant update (used_by) on quotes to corridor_worker;
