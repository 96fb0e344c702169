-- Why: fees and spreads change, and an account may have its own. So they are rows that hold for a time:
-- a price names the rows that it was computed with and can be computed again years later, and nobody
-- changes a price that has been given.

-- For two columns of a key without overlaps that are no ranges. In a schema of its own: the functions
-- that come with it are nobody's to call.
create schema gist;
create extension btree_gist schema gist;

create table terms (
  id bigint generated always as identity primary key,
  -- Null for every account that has no terms of its own in this currency.
  account_id text references accounts,
  currency text not null,
  -- What a payout from this currency costs, in its minor units: max(minimum, fixed + share).
  fixed_minor bigint not null check (fixed_minor >= 0),
  basis_points int not null check (basis_points between 0 and 9999),
  minimum_minor bigint not null check (minimum_minor >= 0),
  -- The largest payout from this currency; the API takes no more than 10^14.
  maximum_minor bigint not null check (maximum_minor between 1 and 100000000000000),
  -- Taken off the mid rate where it is the wider one of the two currencies.
  spread_basis_points int not null check (spread_basis_points between 0 and 9999),
  valid_at tstzrange not null,
  owner text not null generated always as (coalesce(account_id, '')) stored,
  unique (owner, currency, valid_at without overlaps)
);
grant insert (account_id, currency, fixed_minor, basis_points, minimum_minor, maximum_minor,
  spread_basis_points, valid_at), update (valid_at) on terms to corridor_operator;

-- About a million US dollars at the most, and about 0.30 US dollars and 40 basis points, at least 1.
insert into terms (currency, fixed_minor, minimum_minor, maximum_minor, spread_basis_points,
  basis_points, valid_at)
select currency, fixed, minimum, maximum, spread, 40, tstzrange('2026-01-01T00:00:00Z', null)
  from (values
  ('USD', 30, 100, 100000000, 50),
  ('EUR', 30, 100, 100000000, 50),
  ('GBP', 25, 80, 80000000, 50),
  ('JPY', 45, 150, 150000000, 50),
  ('CZK', 600, 2000, 2000000000, 70),
  ('DKK', 200, 650, 650000000, 60),
  ('HUF', 10000, 33000, 33000000000, 80),
  ('PLN', 110, 360, 360000000, 70),
  ('RON', 130, 440, 440000000, 80),
  ('SEK', 280, 950, 950000000, 60),
  ('CHF', 25, 80, 80000000, 50),
  ('ISK', 40, 125, 125000000, 100),
  ('NOK', 300, 1000, 1000000000, 60),
  ('TRY', 1400, 4600, 4600000000, 150),
  ('AUD', 45, 150, 150000000, 50),
  ('BRL', 160, 530, 530000000, 100),
  ('CAD', 40, 140, 140000000, 50),
  ('CNY', 210, 700, 700000000, 80),
  ('HKD', 230, 780, 780000000, 60),
  ('IDR', 500000, 1700000, 1700000000000, 100),
  ('ILS', 100, 330, 330000000, 80),
  ('INR', 2700, 9000, 9000000000, 90),
  ('KRW', 440, 1500, 1500000000, 80),
  ('MXN', 550, 1850, 1850000000, 80),
  ('MYR', 125, 415, 415000000, 90),
  ('NZD', 55, 175, 175000000, 60),
  ('PHP', 1750, 5900, 5900000000, 90),
  ('SGD', 40, 130, 130000000, 60),
  ('THB', 970, 3200, 3200000000, 80),
  ('ZAR', 520, 1700, 1700000000, 100),
  ('KWD', 95, 310, 310000000, 80),
  ('AED', 110, 370, 370000000, 70),
  ('SAR', 110, 375, 375000000, 70)
) v (currency, fixed, minimum, maximum, spread);

-- Whoever prices reads the terms of the moment when its transaction began. A change that is written
-- a minute before it holds is therefore seen by every price that it is for, and by no other.
create function refuse_past_terms() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
declare
  moment timestamptz := case when tg_op = 'INSERT' then lower(new.valid_at) else upper(new.valid_at) end;
begin
  if moment is null or moment < now() + interval '1 minute'
     or (tg_op = 'UPDATE' and (lower(old.valid_at) <> lower(new.valid_at)
         or upper(old.valid_at) < now() + interval '1 minute')) then
    raise exception 'terms hold from a time that is at least a minute ahead, and those of the past stay';
  end if;
  return new;
end $$;
create trigger dated before insert or update of valid_at on terms
  for each row execute function refuse_past_terms();
create trigger kept before update of id, account_id, currency, fixed_minor, basis_points,
    minimum_minor, maximum_minor, spread_basis_points on terms
  for each statement execute function refuse_edit('terms are replaced by others, and never changed');
create trigger append_only before delete on terms
  for each row execute function refuse_change();
create trigger append_only_all before truncate on terms
  for each statement execute function refuse_change();

alter table operator_actions alter column subject_type set expression as (
  case split_part(subject_id, '_', 1)
    when 'po' then 'payout' when 'bat' then 'batch' when 'acc' then 'account'
    when 'key' then 'api_key' when 'terms' then 'terms' else 'rate' end);

-- The terms that a price was computed with: no foreign keys, for the reasons of the rates. Within one
-- currency there is no spread.
alter table quotes add column fee_terms_id bigint, add column spread_terms_id bigint;
create trigger terms before update of fee_terms_id, spread_terms_id on quotes
  for each statement execute function refuse_edit('a quote keeps what it was priced with');

alter table payouts add column fee_terms_id bigint, add column spread_terms_id bigint,
  add check (source_minor is null or fee_terms_id is not null) not valid;
grant update (fee_terms_id, spread_terms_id) on payouts to corridor_worker;
create trigger frozen_terms before update of fee_terms_id, spread_terms_id on payouts for each row
  when (old.source_minor is not null and (old.fee_terms_id, old.spread_terms_id)
    is distinct from (new.fee_terms_id, new.spread_terms_id))
  execute function refuse_repricing();
