-- Why: a process can do no more harm than its role allows. The owner of the tables runs migrations
-- and nothing else. The processes connect as
--
--   corridor_api        records what customers and rails send
--   corridor_worker     decides payouts and moves them
--   corridor_operator   the command line: reads everything, opens accounts, creates keys, pauses
--                       batches. It is not the worker's role: with that, one person could post what
--                       takes two, and a worker could create itself a key to any account
--
-- or as logins that are members of these. None owns a table, so none can alter one or disable a
-- trigger; none may update or delete the ledger, its balances, the moves, the audit or a history.
--
-- Each later file grants what its own tables need. All three roles may read every table by the
-- default privileges below. A column that a later migration adds to accounts, api_keys, batches,
-- beneficiaries, payouts, quotes or rail_inbox is updated by no role until it is granted:
--
--   grant insert, update on new_table to corridor_worker;
--   grant update (new_column) on payouts to corridor_worker;
--
-- A function says `set search_path = pg_catalog, public, pg_temp`: otherwise a temporary table of the
-- caller's would hide ours. One that is SECURITY DEFINER is revoked from public and granted to the
-- roles that need it. test/integration/roles.test.ts holds this.

-- Roles belong to the whole server: the migration of another database may be creating them now, and
-- on a managed server an administrator has created them before. They have no password and no login.
do $$
declare
  wanted text;
begin
  foreach wanted in array '{corridor_api,corridor_worker,corridor_operator}'::text[] loop
    continue when exists (select from pg_roles where rolname = wanted);
    begin
      execute format('create role %I', wanted);
    exception
      when duplicate_object or unique_violation then null;
      when insufficient_privilege then
        raise insufficient_privilege using
          message = format('The role %s does not exist, and %s may not create it.', wanted, current_user),
          hint = format('Have an administrator run: create role %s', wanted);
    end;
  end loop;
end $$;

-- Creates a login for processes of a kind, or sets the password of the one that exists. For the
-- owner, if it may create roles; elsewhere an administrator does the same by hand.
create function allow_login(kind text, login text, secret text) returns void language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  if not exists (select from pg_roles where rolname = login) then
    execute format('create role %I', login);
  end if;
  execute format('alter role %I login password %L', login, secret);
  if login <> kind then
    execute format('grant %I to %I', kind, login);
  end if;
  execute format('grant connect on database %I to %I', current_database(), login);
end $$;
revoke execute on function allow_login(text, text, text) from public;

grant usage on schema public to corridor_api, corridor_worker, corridor_operator;
grant select on all tables in schema public to corridor_api, corridor_worker, corridor_operator;
alter default privileges in schema public
  grant select on tables to corridor_api, corridor_worker, corridor_operator;

-- The triggers that keep rows as they were written.

create function refuse_change() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  raise exception '% is append-only: correct it with a new entry', tg_table_name;
end $$;

-- Refuses with the message that the trigger gives.
create function refuse_edit() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  raise exception '%', tg_argv[0];
end $$;
