-- Why: an account that may be in the wrong hands must be stopped at once, and one that has left for
-- good must not come back by accident. What stops it is part of the decision on each payout: a decision
-- holds the balances of its account, so whatever changes the rules of an account takes those locks as
-- well. It waits for the decisions under way, and each decision after it sees the change. A decision
-- takes no further lock for that, so as many as before run beside each other.

alter table accounts add column state text not null default 'open'
  check (state in ('open', 'frozen', 'closed'));

-- What an account may send now. It is read under the lock of the balances by those who decide, and
-- without it by those who only show it.
create view account_funds as
select a.id as account_id, a.state, b.currency, b.amount_minor as available_minor
  from accounts a left join ledger_balances b on b.account_id = a.id and b.kind = 'available';

-- Locks the balances that accepting these payouts will change, and returns what their account may send:
-- all payouts of a list are one account's. Two statements, for the second sees what was committed while
-- the first one waited for its locks; one statement would see the rules as they were before.
drop function lock_balances(text[]);
create function lock_funds(payout_ids text[]) returns setof account_funds language plpgsql
security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
begin
  perform 1 from ledger_balances b
    where (b.account_id, b.currency) in (
      select p.account_id, coalesce(q.source_currency, p.source_currency)
        from payouts p left join quotes q on q.id = p.quote_id and q.account_id = p.account_id
       where p.id = any (payout_ids))
    order by b.ledger_account_id for no key update;
  return query
    select f.* from account_funds f
     where f.account_id = (select account_id from payouts where id = payout_ids[1]);
end $$;
revoke execute on function lock_funds(text[]) from public;
grant execute on function lock_funds(text[]) to corridor_worker;

-- Waits for every decision on the account's payouts, and keeps others from being made. The balances go
-- first, as everywhere. A balance that comes meanwhile refers to the account and waits for it, so those
-- that came in between are locked as well.
create function lock_account(locked_id text) returns void language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  perform 1 from ledger_balances
    where account_id = locked_id order by ledger_account_id for no key update;
  perform 1 from accounts where id = locked_id for update;
  perform 1 from ledger_balances
    where account_id = locked_id order by ledger_account_id for no key update;
end $$;

-- Freezes, opens or closes an account. One that is closed stays closed: nothing of it is under way or
-- left. Its history stays, and the money of a payout that comes back later is credited all the same.
create function set_account_state(changed_id text, wanted text) returns void language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  present text;
  owned text;
begin
  perform lock_account(changed_id);
  select state into strict present from accounts where id = changed_id;
  if present = wanted then
    raise exception '% is % already.', changed_id, wanted;
  elsif present = 'closed' then
    raise exception '% is closed, and stays closed.', changed_id;
  elsif wanted = 'closed' then
    select id into owned from payouts
     where account_id = changed_id and status in ('pending', 'processing', 'sent') limit 1;
    if found then
      raise exception '% has payouts that are not final, such as %.', changed_id, owned;
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
