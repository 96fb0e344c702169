-- Why: a company wants its people to sign in as they do everywhere else, with the second factor that its
-- provider asks for, and to have no access on the day after they leave. In place of a key of their own an
-- operator may have an identity at that provider (OpenID Connect). A process of its own, whose login can do
-- nothing else, checks what the provider has signed and begins a session: a key that works for some hours.
-- Whatever checks a key stays as it was.

do $$
begin
  if not exists (select from pg_roles where rolname = 'corridor_sign_in') then
    create role corridor_sign_in;
  end if;
exception
  -- The migration of another database has created it now.
  when duplicate_object or unique_violation then null;
  when insufficient_privilege then
    raise insufficient_privilege using
      message = format('The role corridor_sign_in does not exist, and %s may not create it.', current_user),
      hint = 'Have an administrator run: create role corridor_sign_in';
end $$;
grant usage on schema public to corridor_sign_in;

-- One or the other: a key that is left would outlast the access that the company takes away.
alter table operators
  alter column key_hash drop not null,
  alter column last_four drop not null,
  add column identity text check (length(identity) between 1 and 255),
  add constraint one_proof check (num_nonnulls(key_hash, identity) = 1);
-- An address may be another person's once its first one has left.
create unique index on operators (identity) where revoked_at is null;
grant select (identity) on operators to corridor_operator;

create table operator_sessions (
  key_hash bytea primary key check (octet_length(key_hash) = 32),
  operator text not null references operators,
  began_at timestamptz(3) not null default now(),
  ends_at timestamptz(3) not null check (ends_at > began_at and ends_at <= began_at + interval '12 hours')
);
create index on operator_sessions (operator);
revoke select on operator_sessions from corridor_api, corridor_worker, corridor_operator;

-- As before, and of a session that has not ended by the clock: to a transaction that stays open it is for
-- ever the time at which it began.
create or replace function operator_of(operator_key text, needed operator_role) returns text
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  found operators;
  hash bytea := sha256(convert_to(operator_key, 'UTF8'));
begin
  -- Any other one sees operators and sessions as they were when it began, also after they have ended.
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'An operator acts in a transaction that is read committed.';
  end if;
  select o.* into found from operators o
   where o.revoked_at is null and (o.key_hash = hash or o.name = (
     select s.operator from operator_sessions s where s.key_hash = hash and s.ends_at > clock_timestamp()));
  if found.name is null then
    raise exception 'The operator''s key is unknown, replaced or revoked, or its session has ended.';
  elsif found.role < needed then
    raise exception '% has the role %; this takes %.', found.name, found.role, needed;
  end if;
  return found.name;
end $$;

-- Begins a session of the operator with an identity, and says so in the audit. Sessions that have ended are
-- forgotten: there are as many as operators sign in within a day.
create function begin_operator_session(id text, of_identity text, hash bytea, hours integer)
returns table (operator text, role operator_role, ends_at timestamptz) language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  found operators;
  ends timestamptz(3) := now() + make_interval(hours => hours);
begin
  -- What is changed about the operator at the same time waits, or is seen.
  select * into found from operators o where o.identity = of_identity and o.revoked_at is null for share;
  if found.name is null then
    raise exception 'No operator has the identity %.', of_identity;
  end if;
  delete from operator_sessions s where s.ends_at <= now();
  insert into operator_sessions (key_hash, operator, ends_at) values (hash, found.name, ends);
  insert into operator_actions (id, subject_id, actor_kind, operator, reason, command, outcome, detail)
  values (id, 'operator_' || found.name, 'operator', found.name, 'signed in',
    jsonb_build_object('kind', 'sign-in', 'until', ends), 'done', '');
  return query select found.name, found.role, ends::timestamptz;
end $$;
revoke execute on function begin_operator_session(text, text, bytea, integer) from public;
grant execute on function begin_operator_session(text, text, bytea, integer) to corridor_sign_in;

-- Whatever an operator proved themselves by before proves nothing any more.
create function end_sessions() returns trigger language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
begin
  delete from operator_sessions s where s.operator = new.name;
  return null;
end $$;
revoke execute on function end_sessions() from public;
create trigger proven_anew after update of key_hash, identity, revoked_at on operators
  for each row execute function end_sessions();

-- Adds an operator or replaces what proves one: an admin, of anybody; and who has a key their own key, in
-- their role. Whoever signs in gets no key from themselves.
create function give_proof(operator_key text, action text, verb text, given_name text,
  given_role operator_role, hash bytea, four text, given_identity text, given_reason text) returns void
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
declare
  known operators;
  by_name text;
begin
  -- First the lock: a revocation or a new key that it waits for would not be seen by a check before it.
  lock table operators in share row exclusive mode;
  by_name := operator_of(operator_key, 'view');
  select * into known from operators where name = given_name;
  -- By these two words key_givers finds the line.
  if coalesce(verb not in ('add', 'roll'), true) then
    raise exception 'Operators are given a key or an identity by add and roll.';
  elsif verb = 'add' and known.name is not null then
    raise exception 'There is an operator % already: roll gives them another key.', given_name;
  elsif verb = 'roll' and known.name is null then
    raise exception 'There is no operator %.', given_name;
  elsif by_name = given_name and known.identity is not null then
    raise exception '% signs in: another admin replaces that.', given_name;
  elsif by_name <> given_name or given_identity is not null
      or coalesce(given_role <> known.role, false) then
    by_name := operator_of(operator_key, 'admin');
  end if;
  if exists (select from operators o
              where o.identity = given_identity and o.name <> given_name and o.revoked_at is null) then
    raise exception 'Another operator has the identity %.', given_identity;
  end if;
  insert into operators (name, role, key_hash, last_four, identity)
  values (given_name, coalesce(given_role, known.role), hash, four, given_identity)
  on conflict (name) do update set (role, key_hash, last_four, identity, rolled_at, revoked_at)
    = (excluded.role, excluded.key_hash, excluded.last_four, excluded.identity, now(), null);
  -- By the clock, from which key_givers counts: a transaction may have begun a week ago.
  insert into operator_actions (id, subject_id, actor_kind, operator, reason, command, outcome, detail,
    created_at)
  values (action, 'operator_' || given_name, 'operator', by_name, given_reason,
    jsonb_strip_nulls(jsonb_build_object('kind', 'operators ' || verb,
      'role', coalesce(given_role, known.role), 'lastFour', four, 'identity', given_identity)), 'done', '',
    clock_timestamp());
end $$;
revoke execute on function
  give_proof(text, text, text, text, operator_role, bytea, text, text, text) from public;

create or replace function give_operator_key(operator_key text, id text, verb text, given_name text,
  given_role operator_role, hash bytea, four text, reason text) returns void language sql
security definer set search_path = pg_catalog, public, pg_temp as $$
  select give_proof(operator_key, id, verb, given_name, given_role, hash, four, null, reason)
$$;

create function give_operator_identity(operator_key text, id text, verb text, given_name text,
  given_role operator_role, identity text, reason text) returns void language sql
security definer set search_path = pg_catalog, public, pg_temp as $$
  select give_proof(operator_key, id, verb, given_name, given_role, null, null, identity, reason)
$$;
revoke execute on function
  give_operator_identity(text, text, text, text, operator_role, text, text) from public;
grant execute on function
  give_operator_identity(text, text, text, text, operator_role, text, text) to corridor_operator;

-- As before, in the place of whatever proved the operator until now.
create or replace function enroll_operator(id text, given_name text, given_role operator_role, hash bytea,
  four text, given_reason text, kind text, by_name text) returns void language sql
set search_path = pg_catalog, public, pg_temp as $$
  insert into operators (name, role, key_hash, last_four) values (given_name, given_role, hash, four)
  on conflict (name) do update set (role, key_hash, last_four, identity, rolled_at, revoked_at)
    = (excluded.role, excluded.key_hash, excluded.last_four, null, now(), null);
  insert into operator_actions (id, subject_id, actor_kind, operator, reason, command, outcome, detail)
  values (id, 'operator_' || given_name, 'operator', by_name, given_reason,
    jsonb_build_object('kind', kind, 'role', given_role, 'lastFour', four), 'done', '');
$$;
