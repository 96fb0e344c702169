-- Why: after a failover to a server whose clock is behind, the last heartbeat is in the future. An interruption
-- that began after its end was refused, and with it every sweep and every payout that was to be sent, until
-- the clock had caught up. Now it ends with the last heartbeat, so that what was requested by the clock
-- that was ahead is part of it, and it begins no later than now.
create or replace view open_interruption as
select least(beaten_at, now()::timestamptz(3)) as began_at,
       greatest(beaten_at, now()::timestamptz(3)) as ended_at
  from heartbeats
 where beaten_at < now() - interval '10 minutes' or history <> (select database_history());

-- A dump may be restored to the cluster that it is from, where only the database is another one. What is
-- recorded becomes what the function answers from now on, so that this is no interruption.
update heartbeats
   set history = history || '/' || (select oid from pg_database where datname = current_database());
create or replace function database_history() returns text language sql stable security definer
set search_path = pg_catalog, pg_temp as $$
  select system_identifier || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || '/' || d.oid
    from pg_control_system(), pg_database d where d.datname = current_database()
$$;
