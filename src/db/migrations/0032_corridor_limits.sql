-- Why: what an account may lose before anybody notices depends on where the money goes, and an account may
-- pay much to one currency and little to another. A limit may be that of a corridor, and a payout is within
-- the limits of its source currency and those of its corridor. In `account_limits` and `limit_uses` the
-- column `currency` is either, as USD or USD/EUR: nothing that is there changes, and the release before,
-- which joins it with a source currency, goes on. It knows no corridor's limit: set one once it has ended.
-- A corridor's limit needs no lock of its own: whoever decides, releases or sets one holds the balance in
-- the source currency, as before. When it is set first, it counts the payouts of the present month.
alter table account_limits
  drop constraint account_limits_currency_check,
  add constraint account_limits_currency_check check (currency ~ '^[A-Z]{3}(/[A-Z]{3})?$');

-- As before, of the currency and of the corridor.
create or replace function give_back_limit() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  update limit_uses set used_minor = greatest(used_minor - new.source_minor, 0)
   where account_id = new.account_id
     and currency in (new.source_currency, new.source_currency || '/' || new.destination_currency)
     and day = (new.processing_since at time zone 'UTC')::date;
  return null;
end $$;

-- As before, of a currency or a corridor.
create or replace function set_limits(
  limited_id text, limited_currency text, payout bigint, day bigint, month bigint
) returns void language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  source text := split_part(limited_currency, '/', 1);
  before account_limits;
  had_none boolean;
begin
  for attempt in 1..2 loop
    perform 1 from ledger_balances where account_id = limited_id and currency = source
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
      select p.account_id, limited_currency, (p.processing_since at time zone 'UTC')::date,
             sum(p.source_minor)
        from ledger_entries e join payouts p on p.id = e.payout_id
       where e.account_id = limited_id and e.currency = source and e.kind = 'accept'
         and e.created_at >= date_trunc('month', clock_timestamp(), 'UTC')
         and p.status in ('processing', 'sent', 'settled')
         and limited_currency in (source, source || '/' || p.destination_currency)
       group by 1, 2, 3;
  end if;
end $$;
