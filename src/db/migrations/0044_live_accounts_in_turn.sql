-- Why: figures for tests and a live account that came at the same time did not see each other, so both were
-- stored and live payouts had prices of test figures. Now each takes the lock of all changes of rates
-- (db/rates.ts) before it looks for the other.

create or replace function refuse_test_rates() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  perform pg_advisory_xact_lock(7203154882);
  if exists (select from accounts where mode = 'live') then
    raise exception 'the figures of % are for tests, and there are live accounts: expected another provider',
      new.provider;
  end if;
  return new;
end $$;

create or replace function refuse_live_account() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  perform pg_advisory_xact_lock(7203154882);
  if exists (select from rate_provider where is_for_tests) then
    raise exception 'the rates in use are figures for tests: before an account is live, choose another provider with corridor rates use';
  end if;
  return new;
end $$;
