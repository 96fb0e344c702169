-- Why: `now()` is when a transaction began. One that waited for a lock wrote times that lie before
-- those of whoever held it, so that a history, or an account's events by their numbers, ran
-- backwards. What is written one after another is timed as it is written, and never before what
-- stands there already, should the clock be set back.

-- As before, but for the time.
create or replace function record_status() returns trigger language plpgsql
set plan_cache_mode = 'force_generic_plan' set search_path = pg_catalog, public, pg_temp as $$
declare
  recorded_at timestamptz(3) := clock_timestamp();
begin
  if tg_op = 'INSERT' then
    if new.status <> 'pending' then
      raise exception 'a payout begins as pending, not %', new.status;
    end if;
    recorded_at := new.requested_at;
  elsif not exists (select from payout_moves
          where from_status = old.status and to_status = new.status) then
    raise exception 'payout %: no move from % to %', old.id, old.status, new.status;
  end if;
  new.status_history := new.status_history || jsonb_build_object('status', new.status,
    -- Text of one form sorts as its times do; nulls do not count.
    'at', greatest(to_char(recorded_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
                     collate "C", new.status_history -> -1 ->> 'at'),
    'reason', new.status_reason);
  return new;
end $$;

-- The account's number is locked by then, so the times follow the numbers.
alter table events alter created_at set default clock_timestamp();
