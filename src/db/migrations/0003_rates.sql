-- Why: the source of the rates sets every price. So one provider is pinned, every rate that arrives
-- is kept for ever, one that jumps waits for a person, and quotes, payouts and batches name the rates
-- they were priced with.

-- Every rate that has arrived.
create table rates (
  id bigint generated always as identity primary key,
  currency text not null,
  -- Units of the currency for one euro, exact.
  per_euro numeric not null check (per_euro > 0),
  provider text not null,
  as_of timestamptz(3) not null,
  arrived_at timestamptz(3) not null default now(),
  -- More than 10 % away from the last one that was accepted: a person has to accept it first.
  jumped boolean not null default false,
  -- Clocks differ by a little; a rate of tomorrow would hold for a day too long.
  constraint rate_from_the_future check (as_of <= arrived_at + interval '5 minutes'),
  unique (currency, provider, as_of, per_euro)
);
create index on rates (currency, id);
create index on rates (id) where jumped;
create trigger append_only before update or delete on rates
  for each row execute function refuse_change();
create trigger append_only_all before truncate on rates
  for each statement execute function refuse_change();
grant insert on rates to corridor_worker;

-- What a person decided about a rate that jumped.
create table rate_decisions (
  rate_id bigint primary key references rates,
  outcome text not null check (outcome in ('accepted', 'rejected')),
  operator text not null check (operator <> ''),
  reason text not null check (reason <> ''),
  decided_at timestamptz(3) not null default now()
);
create trigger append_only before update or delete on rate_decisions
  for each row execute function refuse_change();
create trigger append_only_all before truncate on rate_decisions
  for each statement execute function refuse_change();
grant insert on rate_decisions to corridor_operator;

-- The one provider whose rates are used, for test and for live accounts alike: the first that
-- delivers a table, until a person chooses another.
create table rate_provider (
  is_pinned boolean primary key default true check (is_pinned),
  provider text not null,
  -- Figures written by hand: never beside a live account.
  is_for_tests boolean not null,
  -- Null as long as it is the first that delivered.
  operator text check (operator <> ''),
  reason text check (reason <> ''),
  pinned_at timestamptz(3) not null default now(),
  check ((operator is null) = (reason is null))
);
grant insert on rate_provider to corridor_worker;
grant insert, update on rate_provider to corridor_operator;

-- The rates that prices are computed from: a copy of one row a currency, so that a quote or an
-- acceptance reads one small table however many rates are kept. Workers fill it when they start.
create table current_rates (
  currency text primary key,
  id bigint not null unique references rates,
  per_euro numeric not null,
  provider text not null,
  as_of timestamptz(3) not null
);

create view accepted_rates as
select r.* from rates r
 where not r.jumped or exists (select from rate_decisions d
         where d.rate_id = r.id and d.outcome = 'accepted');

-- The last to arrive of its currency, until a person decides about it.
create view waiting_rates as
select r.*, (select a.per_euro from accepted_rates a
              where a.currency = r.currency order by a.id desc limit 1) as last_per_euro
  from rates r
 where r.jumped and r.provider = (select provider from rate_provider)
   and not exists (select from rate_decisions d where d.rate_id = r.id)
   and not exists (select from rates n
         where n.currency = r.currency and n.provider = r.provider and n.id > r.id);

-- However old the last accepted rate is: a rate that stays wrong must not be used after a day.
create function judge_rate() returns trigger language plpgsql
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
  new.jumped := coalesce(abs(new.per_euro - last) > last * 0.1, false);
  return new;
end $$;
create trigger judged before insert on rates for each row execute function judge_rate();

-- Puts the last accepted rates of the pinned provider in use, and removes those of another one. As
-- the owner: no role writes what prices are computed from, for that would leave no trace.
create function take_accepted_rates(currencies text[]) returns void language sql
security definer set search_path = pg_catalog, public, pg_temp as $$
  delete from current_rates where provider <> (select provider from rate_provider);
  insert into current_rates (currency, id, per_euro, provider, as_of)
    select a.currency, a.id, a.per_euro, a.provider, a.as_of
      from unnest(currencies) as wanted (currency)
     cross join lateral (select r.* from accepted_rates r
             where r.currency = wanted.currency
               and r.provider = (select provider from rate_provider)
             order by r.id desc limit 1) a
    on conflict (currency) do update
       set id = excluded.id, per_euro = excluded.per_euro, provider = excluded.provider,
           as_of = excluded.as_of
     where current_rates.id <> excluded.id
$$;
revoke execute on function take_accepted_rates(text[]) from public;
grant execute on function take_accepted_rates(text[]) to corridor_worker, corridor_operator;

-- Figures for tests and a live account exclude each other, whichever comes first.
create function refuse_test_rates() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  if exists (select from accounts where mode = 'live') then
    raise exception 'the figures of % are for tests, and there are live accounts: expected another provider',
      new.provider;
  end if;
  return new;
end $$;
create trigger no_live_account before insert or update on rate_provider
  for each row when (new.is_for_tests) execute function refuse_test_rates();

create function refuse_live_account() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  if exists (select from rate_provider where is_for_tests) then
    raise exception 'the rates in use are figures for tests: before an account is live, choose another provider with corridor rates use';
  end if;
  return new;
end $$;
create trigger no_test_rates before insert or update of mode on accounts
  for each row when (new.mode = 'live') execute function refuse_live_account();
