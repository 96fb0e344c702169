-- Why: a provider that corrected a rate and then took the correction back, under the same time, published
-- figures that were stored already. So the correction stayed in use, or waited for a person to accept it.

-- Its index is not read: that of 0015 finds the rates of a currency.
alter table rates drop constraint rates_currency_provider_as_of_per_euro_key;

-- As before, but a rate is stored again unless it repeats the one that arrived last.
create or replace function judge_rate() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
declare
  pinned text := (select provider from rate_provider);
  last numeric := (select per_euro from accepted_rates
                    where currency = new.currency order by id desc limit 1);
begin
  if new.provider is distinct from pinned then
    raise exception 'rates of % are refused, those of % are in use: expected its RATE_SOURCE, or corridor rates use before',
      new.provider, pinned;
  end if;
  if (new.as_of, new.per_euro) = (select as_of, per_euro from rates
        where currency = new.currency and provider = new.provider order by id desc limit 1) then
    return null;
  end if;
  new.jumped := coalesce(abs(new.per_euro - last) > last * 0.1, false);
  return new;
end $$;
