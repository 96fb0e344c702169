-- Why: an account that may be in the wrong hands must be stopped at once, and what it can lose before
-- anybody notices must have a limit. Both are part of the decision on each payout, which reads them once
-- it holds the balances that it spends. Whoever changes the rules waits for the same locks, and so for
-- the decisions that have read the rules as they were. A decision takes no further lock for that, so as
-- many as before run beside each other.

alter table accounts add column state text not null default 'open'
  check (state in ('open', 'frozen', 'closed'));

-- What an account may send of a currency at most; null is no limit.
create table account_limits (
  account_id text not null references accounts,
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  payout_minor bigint check (payout_minor > 0),
  day_minor bigint check (day_minor > 0),
  month_minor bigint check (month_minor > 0),
  primary key (account_id, currency),
  check (num_nonnulls(payout_minor, day_minor, month_minor) > 0),
  -- A limit that another one makes meaningless was typed wrong.
  check (coalesce(payout_minor <= least(day_minor, month_minor), true)
    and coalesce(day_minor <= month_minor, true))
);

-- What was accepted on a day in UTC and has not ended without a payment: of accounts with limits alone,
-- and one row a day, because the payouts of a month may be a million. It is written once a decision,
-- under the lock of the balance, and lives as long as the limits.
create table limit_uses (
  account_id text not null,
  currency text not null,
  day date not null,
  used_minor bigint not null check (used_minor >= 0),
  primary key (account_id, currency, day),
  foreign key (account_id, currency) references account_limits on delete cascade
);
grant insert, update on limit_uses to corridor_worker;

-- A payout that ends failed, canceled or returned no longer counts, on the day that it was accepted. At
-- the end of the transaction, which by then holds the balance: a decision holds that first as well. A
-- wrong count must never keep money from being released, so it ends at zero.
create function give_back_limit() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  update limit_uses set used_minor = greatest(used_minor - new.source_minor, 0)
   where account_id = new.account_id and currency = new.source_currency
     and day = (new.processing_since at time zone 'UTC')::date;
  return null;
end $$;
create constraint trigger gives_back_limit after update of status on payouts
  deferrable initially deferred for each row
  when (old.status in ('processing', 'sent', 'settled')
    and new.status in ('failed', 'canceled', 'returned'))
  execute function give_back_limit();

-- What an account may send now: of each currency what is available, the limits, and what of them was
-- used on each of the last days. It is read under the lock of the balances by those who decide, and
-- without it by those who only show it.
create view account_funds as
select a.id as account_id, a.state, f.currency, f.amount_minor as available_minor,
       f.payout_minor, f.day_minor, f.month_minor, u.uses, clock_timestamp() as read_at
  from accounts a
  left join lateral (
    select currency, b.amount_minor, l.payout_minor, l.day_minor, l.month_minor, l.account_id
      from (select * from ledger_balances where account_id = a.id and kind = 'available') b
      full join (select * from account_limits where account_id = a.id) l using (currency)) f on true
  left join lateral (
    select coalesce(jsonb_object_agg(day, used_minor::text), '{}') as uses
      from limit_uses where account_id = f.account_id and currency = f.currency
       -- More than a month: whoever reads it knows which of them count.
       and day > (clock_timestamp() at time zone 'UTC')::date - 32) u on true;

-- Locks the balances that accepting these payouts will change, and returns what their account may send:
-- all payouts of a list are one account's. Two statements, for the second sees what was committed while
-- the first one waited for its locks; one statement would see the rules as they were before. It may see
-- money in a currency that the account had none of until then. That is not locked, and another decision
-- may spend it and its limits at the same moment: as far as this decision goes, it has not come yet.
drop function lock_balances(text[]);
create function lock_funds(payout_ids text[]) returns setof account_funds language plpgsql
security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  locked text[];
begin
  select array_agg(l.currency) into locked from (
    select b.currency from ledger_balances b
     where (b.account_id, b.currency) in (
       select p.account_id, coalesce(q.source_currency, p.source_currency)
         from payouts p left join quotes q on q.id = p.quote_id and q.account_id = p.account_id
        where p.id = any (payout_ids))
     order by b.ledger_account_id for no key update) l;
  return query
    select f.account_id, f.state, f.currency,
           case when f.currency = any (locked) then f.available_minor end,
           f.payout_minor, f.day_minor, f.month_minor, f.uses, f.read_at
      from account_funds f
     where f.account_id = (select account_id from payouts where id = payout_ids[1]);
end $$;
revoke execute on function lock_funds(text[]) from public;
grant execute on function lock_funds(text[]) to corridor_worker;

-- Waits for the decisions under way on an account. Called after a new state was committed: whoever takes
-- a balance later, or one that comes later, has seen it. It holds nothing that others need first.
create function await_decisions(awaited_id text) returns void language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
begin
  perform 1 from ledger_balances
    where account_id = awaited_id order by ledger_account_id for no key update;
end $$;
revoke execute on function await_decisions(text) from public;
grant execute on function await_decisions(text) to corridor_operator;

-- Freezes, opens or closes an account. A freeze takes the row of the account alone, in a mode that no
-- foreign key waits for: it neither waits for payouts nor stops them, and holds for each decision after
-- it. Only a frozen account closes. With the balances in hand the decisions from before the freeze have
-- ended, and none after it has accepted anything, so what is checked stays true. A payout that waits for
-- a person may still move money, whatever its status is. One that is closed stays closed: nothing of it
-- is under way or left. Its history stays, and the money of a payout that comes back later is credited
-- all the same.
create function set_account_state(changed_id text, wanted text) returns void language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  present text;
  owned text;
begin
  select state into strict present from accounts where id = changed_id for no key update;
  if present = wanted then
    raise exception '% is % already.', changed_id, wanted;
  elsif present = 'closed' then
    raise exception '% is closed, and stays closed.', changed_id;
  elsif wanted = 'closed' then
    if present = 'open' then
      raise exception '% is open; freeze it first.', changed_id;
    end if;
    perform await_decisions(changed_id);
    select id into owned from payouts
     where account_id = changed_id
       and (status in ('pending', 'processing', 'sent') or attention_at is not null) limit 1;
    if found then
      raise exception '% has payouts that are not final or wait for an operator, such as %.',
        changed_id, owned;
    end if;
    select currency into owned from ledger_balances
     where account_id = changed_id and amount_minor <> 0 limit 1;
    if found then
      raise exception '% has a balance in %; pay it out first.', changed_id, owned;
    end if;
  end if;
  update accounts set state = wanted where id = changed_id;
end $$;
revoke execute on function set_account_state(text, text) from public;
grant execute on function set_account_state(text, text) to corridor_operator;

-- Sets limits of an account in a currency: null leaves one as it is, and zero ends it. For an account
-- that had none, what was accepted in this month is counted first. Decisions wait for that: they hold
-- the balance in the currency. Where there is none, nothing was accepted, and the account is locked
-- against a first one. Nothing else is held while that is waited for, as requests may hold the account
-- and wait for a decision.
create function set_limits(
  limited_id text, limited_currency text, payout bigint, day bigint, month bigint
) returns void language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  before account_limits;
  had_none boolean;
begin
  for attempt in 1..2 loop
    perform 1 from ledger_balances where account_id = limited_id and currency = limited_currency
      order by ledger_account_id for no key update;
    exit when found or attempt = 2;
    perform 1 from accounts where id = limited_id for update;
  end loop;
  select * into before from account_limits
   where account_id = limited_id and currency = limited_currency;
  had_none := not found;
  payout := nullif(coalesce(payout, before.payout_minor), 0);
  day := nullif(coalesce(day, before.day_minor), 0);
  month := nullif(coalesce(month, before.month_minor), 0);
  if payout > least(day, month) or day > month then
    raise exception 'The limit a payout is at most that of a day, and that of a day at most that of a month.';
  end if;
  if num_nonnulls(payout, day, month) = 0 then
    delete from account_limits where account_id = limited_id and currency = limited_currency;
    return;
  end if;
  insert into account_limits values (limited_id, limited_currency, payout, day, month)
    on conflict (account_id, currency) do update
       set (payout_minor, day_minor, month_minor) = (payout, day, month);
  if had_none then
    insert into limit_uses
      select p.account_id, p.source_currency, (p.processing_since at time zone 'UTC')::date,
             sum(p.source_minor)
        from ledger_entries e join payouts p on p.id = e.payout_id
       where e.account_id = limited_id and e.currency = limited_currency and e.kind = 'accept'
         and e.created_at >= date_trunc('month', clock_timestamp(), 'UTC')
         and p.status in ('processing', 'sent', 'settled')
       group by 1, 2, 3;
  end if;
end $$;
revoke execute on function set_limits(text, text, bigint, bigint, bigint) from public;
grant execute on function set_limits(text, text, bigint, bigint, bigint) to corridor_operator;

-- A key that leaks is worth less where it works from its owner's own addresses alone; null is anywhere.
-- The cast refuses what is no address and no subnet.
alter table api_keys add column allowed text[]
  check (allowed is null or (cardinality(allowed) > 0 and allowed::inet[] is not null));
