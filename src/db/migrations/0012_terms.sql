-- Why: fees and spreads change, and an account may have its own. So they are rows that hold from a
-- time on. A price names the rows that it was computed with and can be computed again years later, and
-- no change reaches back to a price that was given.

create table terms (
  id bigint generated always as identity primary key,
  -- Null for every account that has no terms of its own in this currency.
  account_id text references accounts,
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  -- What a payout from this currency costs, in its minor units: max(minimum, fixed + share).
  fixed_minor bigint not null check (fixed_minor between 0 and 100000000000000),
  basis_points int not null check (basis_points between 0 and 9999),
  minimum_minor bigint not null check (minimum_minor between 0 and 100000000000000),
  -- The largest payout from this currency; the API takes no more than 10^14.
  maximum_minor bigint not null check (maximum_minor between 1 and 100000000000000),
  -- Taken off the mid rate where it is the wider one of the two currencies.
  spread_basis_points int not null check (spread_basis_points between 0 and 9999),
  valid_from timestamptz(3) not null,
  valid_until timestamptz(3),
  check (valid_until > valid_from),
  -- Something is left of the largest payout.
  check (maximum_minor > greatest(minimum_minor,
    fixed_minor + ceil(maximum_minor * basis_points / 10000.0)))
);
-- Of those that hold at a moment, the terms that began last apply, and of two that began together the
-- newer: so a mistake can be replaced, what has an end gives way to what held before, and as the first
-- rows have none, there is no moment without terms.
create index on terms (account_id, currency, valid_from, id);
grant insert (account_id, currency, fixed_minor, basis_points, minimum_minor, maximum_minor,
  spread_basis_points, valid_from, valid_until) on terms to corridor_operator;

-- What was in the code: 40 basis points and 0.30 US dollars, at least 1 and at most about a million.
insert into terms (currency, fixed_minor, minimum_minor, maximum_minor, spread_basis_points,
  basis_points, valid_from)
select currency, fixed, minimum, maximum, spread, 40, '2026-01-01T00:00:00Z'
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

-- A price is computed with the terms at the beginning of its transaction. Terms that are committed
-- before they hold are seen by every price that is dated after that, and by none before.
create function refuse_past_terms() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  if new.valid_from < clock_timestamp() + interval '30 seconds' then
    raise exception 'Terms must start at least a minute from now: past prices cannot be changed.';
  end if;
  return null;
end $$;
create constraint trigger dated after insert on terms deferrable initially deferred
  for each row execute function refuse_past_terms();
create trigger append_only before update or delete on terms
  for each row execute function refuse_change();
create trigger append_only_all before truncate on terms
  for each statement execute function refuse_change();

-- Writes the table anew; there is a line for each command of a person.
alter table operator_actions alter column subject_type set expression as (
  case split_part(subject_id, '_', 1)
    when 'po' then 'payout' when 'bat' then 'batch' when 'acc' then 'account'
    when 'key' then 'api_key' when 'terms' then 'terms' else 'rate' end);

-- The terms that a price was computed with: no foreign keys, for the reasons of the rates. Within one
-- currency there is no spread. Every price before this was computed with the first rows.
alter table quotes add column fee_terms_id bigint, add column spread_terms_id bigint;
alter table payouts add column fee_terms_id bigint, add column spread_terms_id bigint;
create view first_terms as
select f.currency as source_currency, t.currency as destination_currency, f.id as fee_terms_id,
       case when f.id = t.id then null
            when t.spread_basis_points > f.spread_basis_points then t.id
            else f.id end as spread_terms_id
  from terms f cross join terms t;
update quotes q set fee_terms_id = f.fee_terms_id, spread_terms_id = f.spread_terms_id
  from first_terms f
 where (f.source_currency, f.destination_currency) = (q.source_currency, q.destination_currency);
update payouts p set fee_terms_id = f.fee_terms_id, spread_terms_id = f.spread_terms_id
  from first_terms f
 where (f.source_currency, f.destination_currency) = (p.source_currency, p.destination_currency)
   and p.source_minor is not null;
drop view first_terms;

alter table quotes alter column fee_terms_id set not null;
create trigger terms before update of fee_terms_id, spread_terms_id on quotes
  for each statement execute function refuse_edit('a quote keeps what it was priced with');
alter table payouts add check (source_minor is null or fee_terms_id is not null);
grant update (fee_terms_id, spread_terms_id) on payouts to corridor_worker;
create trigger frozen_terms before update of fee_terms_id, spread_terms_id on payouts for each row
  when (old.source_minor is not null and (old.fee_terms_id, old.spread_terms_id)
    is distinct from (new.fee_terms_id, new.spread_terms_id))
  execute function refuse_repricing();
