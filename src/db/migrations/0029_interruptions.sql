-- Why: a database that is restored to an earlier moment, or replaced by a standby that lagged, does not
-- know what was done in the time that it has lost. A payout that it takes for one that was never sent may
-- have been sent and paid then, and a bank that has forgotten its key would pay it again. So a
-- heartbeat is recorded with the history that the database has; where the two show that time may be
-- missing, what was requested before is treated as sent at the beginning of that time.

-- The one row: when the schedule last found the database, and in which history.
create table heartbeats (
  is_only boolean primary key default true check (is_only),
  beaten_at timestamptz(3) not null,
  history text not null
);

-- Times of which something may be missing. Few, and kept for ever.
create table interruptions (
  began_at timestamptz(3) not null,
  ended_at timestamptz(3) not null check (ended_at >= began_at)
);
create trigger append_only before update or delete on interruptions
  for each row execute function refuse_change();
create trigger append_only_all before truncate on interruptions
  for each statement execute function refuse_change();

-- The cluster, its timeline and the database: a restore to a moment and a failover begin a new timeline, and
-- a dump is restored to another cluster, or to its own as another database.
create function database_history() returns text language sql stable security definer
set search_path = pg_catalog, pg_temp as $$
  select system_identifier || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || '/' || d.oid
    from pg_control_system(), pg_database d where d.datname = current_database()
$$;
revoke execute on function database_history() from public;
grant execute on function database_history() to corridor_worker;
-- A server that does not say it is found out now.
do $$ begin perform database_history(); end $$;

-- The one that is not recorded yet. A copy of the disks has the same history, but its last heartbeat is
-- old; so is that of a service that stood still for ten minutes, where to ask the bank once more does no
-- harm. After a failover to a server whose clock is behind, the last heartbeat is in the future: the
-- interruption ends with it, so that what was requested by the clock that was ahead is part of it.
create view open_interruption as
select least(beaten_at, now()::timestamptz(3)) as began_at,
       greatest(beaten_at, now()::timestamptz(3)) as ended_at
  from heartbeats
 where beaten_at < now() - interval '10 minutes' or history <> (select database_history());

create view known_interruptions as
select began_at, ended_at from interruptions
union all
select began_at, ended_at from open_interruption;

create function beat() returns void language plpgsql security definer
set search_path = pg_catalog, public, pg_temp as $$
begin
  -- Before the history is compared, so that of two at a time the second sees the first.
  perform from heartbeats for update;
  insert into interruptions (began_at, ended_at) select began_at, ended_at from open_interruption;
  insert into heartbeats (beaten_at, history) values (now(), database_history())
    on conflict (is_only) do update set beaten_at = excluded.beaten_at, history = excluded.history;
end $$;
revoke execute on function beat() from public;
grant execute on function beat() to corridor_worker;
