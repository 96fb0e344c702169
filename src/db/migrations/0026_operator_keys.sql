-- Why: the name of an operator was what somebody typed, so whoever held the operators' login, or reached
-- Temporal, was as many people as they liked. Now an operator has a key, and the database checks it: it
-- is the one place that neither a person with that login nor Temporal can change. Of what an operator
-- requests the functions below are the only writers, and they take the name from the key. What a
-- workflow executes is a request that they wrote, looked up again in the transaction that executes it.

create type operator_role as enum ('view', 'operate', 'approve', 'admin');

-- A name is for ever one person's, also after the key is replaced or revoked. It is plain ASCII in
-- small letters: none looks like another one but is not.
create table operators (
  name text primary key check (name ~ '^[a-z0-9][a-z0-9._@+-]{0,63}$' and is_operator_name(name)),
  role operator_role not null,
  -- SHA-256; the key itself is not stored.
  key_hash bytea not null unique check (octet_length(key_hash) = 32),
  last_four text not null,
  created_at timestamptz(3) not null default now(),
  rolled_at timestamptz(3),
  revoked_at timestamptz(3)
);
revoke select on operators from corridor_api, corridor_worker, corridor_operator;
grant select (name, role, last_four, created_at, rolled_at, revoked_at) on operators to corridor_operator;
grant select (name, role, revoked_at) on operators to corridor_worker;

-- What a command takes: on a payout, or of the line that one on anything else leaves.
create function role_for(command jsonb) returns operator_role language sql immutable
set search_path = pg_catalog, public, pg_temp as $$
  select (case
    when command ->> 'kind' = 'approve' then 'approve'
    when command ->> 'kind' in ('retryNow', 'markSettled', 'failAndRelease', 'extendDeadline', 'cancel',
      'correct', 'batches pause', 'batches resume', 'corridors close', 'corridors open') then 'operate'
    else 'admin' end)::operator_role
$$;

-- The name of the operator whose key this is, if their role is the needed one or a higher one.
create function operator_of(operator_key text, needed operator_role) returns text language plpgsql
stable security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  found operators;
begin
  select * into found from operators
   where key_hash = sha256(convert_to(operator_key, 'UTF8')) and revoked_at is null;
  if found.name is null then
    raise exception 'The operator''s key is unknown, replaced or revoked.';
  elsif found.role < needed then
    raise exception '% has the role %; this takes %.', found.name, found.role, needed;
  end if;
  return found.name;
end $$;
revoke execute on function operator_of(text, operator_role) from public;
grant execute on function operator_of(text, operator_role) to corridor_operator;

-- Records what an operator requests of a payout, and has its own workflow drive it, as one of a batch
-- may not be yet; what is not decided is decided in the order of its batch.
create function record_request(operator_key text, id text, payout text, reason text, command jsonb)
returns void language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
begin
  insert into operator_requests (id, payout_id, operator, reason, command)
  values (id, payout, operator_of(operator_key, role_for(command)), reason, command);
  update payouts p set driver = p.id, wake_at = now() + interval '5 seconds'
   where p.id = payout and driver <> p.id and (attention_at is not null or status <> 'pending');
end $$;
revoke execute on function record_request(text, text, text, text, jsonb) from public;
grant execute on function record_request(text, text, text, text, jsonb) to corridor_operator;
revoke insert on operator_requests from corridor_operator;
revoke update (driver, wake_at) on payouts from corridor_operator;

-- The audit line of a command that is executed at once, in the transaction that executes it; the name.
create function record_command(operator_key text, id text, subject text, reason text, command jsonb)
returns text language sql security definer set search_path = pg_catalog, public, pg_temp as $$
  insert into operator_actions (id, subject_id, actor_kind, operator, reason, command, outcome, detail)
  values (id, subject, 'operator', operator_of(operator_key, role_for(command)), reason, command, 'done', '')
  returning operator
$$;
revoke execute on function record_command(text, text, text, text, jsonb) from public;
grant execute on function record_command(text, text, text, text, jsonb) to corridor_operator;
revoke insert on operator_actions from corridor_operator;

-- What the operators' login changes itself it changes together with such a line, of a person who may.
-- Checked at the end, for some lines name what is written before them. A line is of this transaction
-- by `xmin`, which a restored backup does not keep, and by the time at which both began.
create index on operator_actions (created_at);
create function require_operator() returns trigger language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
begin
  -- A member that does not inherit can still take on the role. A superuser is one of every role.
  if session_user <> current_user and pg_has_role(session_user, 'corridor_operator', 'member')
      and not (select rolsuper from pg_roles where rolname = session_user)
      and not exists (select from operator_actions a join operators o on o.name = a.operator
          where a.created_at = now()::timestamptz(3) and a.xmin = pg_current_xact_id()::xid
            and o.revoked_at is null and o.role >= tg_argv[0]::operator_role) then
    raise insufficient_privilege using message = format(
      '%s is changed only together with the audit line of an operator with the role %s', tg_table_name,
      tg_argv[0]);
  end if;
  return null;
end $$;
revoke execute on function require_operator() from public;
create constraint trigger audited after insert or update of name, state on accounts
  deferrable initially deferred for each row execute function require_operator('admin');
create constraint trigger audited after insert or update of expires_at, revoked_at on api_keys
  deferrable initially deferred for each row execute function require_operator('admin');
create constraint trigger audited after insert or update or delete on account_limits
  deferrable initially deferred for each row execute function require_operator('admin');
create constraint trigger audited after insert or update or delete on payee_delays
  deferrable initially deferred for each row execute function require_operator('admin');
create constraint trigger audited after insert on terms
  deferrable initially deferred for each row execute function require_operator('admin');
create constraint trigger audited after insert on rate_decisions
  deferrable initially deferred for each row execute function require_operator('admin');
create constraint trigger audited after insert or update on rate_provider
  deferrable initially deferred for each row execute function require_operator('admin');
create constraint trigger audited after update on account_keys
  deferrable initially deferred for each row execute function require_operator('admin');
create constraint trigger audited after delete on beneficiary_keys
  deferrable initially deferred for each row execute function require_operator('admin');
create constraint trigger audited after insert on corridor_openings
  deferrable initially deferred for each row execute function require_operator('operate');
create constraint trigger audited after update of paused_at on batches
  deferrable initially deferred for each row execute function require_operator('operate');

-- Writes the table anew; there is a line for each command of a person.
alter table operator_actions alter column subject_type set expression as
  (case split_part(subject_id, '_', 1)
    when 'po' then 'payout' when 'bat' then 'batch' when 'acc' then 'account' when 'key' then 'api_key'
    when 'terms' then 'terms' when 'bnf' then 'beneficiary' when 'mk' then 'master_key'
    when 'corridor' then 'corridor' when 'operator' then 'operator' else 'rate' end);

-- Gives an operator a key, one who has or had a key another one: as the owner, who makes the first admin
-- and whoever has lost the only one. The line says whose word it is: the operator's own.
create function enroll_operator(id text, given_name text, given_role operator_role, hash bytea, four text,
  given_reason text, kind text, by_name text) returns void language sql
set search_path = pg_catalog, public, pg_temp as $$
  insert into operators (name, role, key_hash, last_four) values (given_name, given_role, hash, four)
  on conflict (name) do update set (role, key_hash, last_four, rolled_at, revoked_at)
    = (excluded.role, excluded.key_hash, excluded.last_four, now(), null);
  insert into operator_actions (id, subject_id, actor_kind, operator, reason, command, outcome, detail)
  values (id, 'operator_' || given_name, 'operator', by_name, given_reason,
    jsonb_build_object('kind', kind, 'role', given_role, 'lastFour', four), 'done', '');
$$;
revoke execute on function enroll_operator(text, text, operator_role, bytea, text, text, text, text)
  from public;

-- Adds an operator or replaces a key: an admin, of anybody; and everybody their own key, in their role.
create function give_operator_key(operator_key text, id text, verb text, given_name text,
  given_role operator_role, hash bytea, four text, reason text) returns void language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  known operators;
  by_name text := operator_of(operator_key, 'view');
begin
  lock table operators in share row exclusive mode;
  select * into known from operators where name = given_name;
  if verb = 'add' and known.name is not null then
    raise exception 'There is an operator % already: roll gives them another key.', given_name;
  elsif verb = 'roll' and known.name is null then
    raise exception 'There is no operator %.', given_name;
  elsif by_name <> given_name or coalesce(given_role <> known.role, false) then
    by_name := operator_of(operator_key, 'admin');
  end if;
  perform enroll_operator(id, given_name, coalesce(given_role, known.role), hash, four, reason,
    'operators ' || verb, by_name);
end $$;
revoke execute on function give_operator_key(text, text, text, text, operator_role, bytea, text, text)
  from public;
grant execute on function give_operator_key(text, text, text, text, operator_role, bytea, text, text)
  to corridor_operator;

create function revoke_operator(operator_key text, id text, revoked_name text, reason text) returns void
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
begin
  perform record_command(operator_key, id, 'operator_' || revoked_name, reason,
    jsonb_build_object('kind', 'operators revoke'));
  update operators set revoked_at = now() where name = revoked_name and revoked_at is null;
  if not found then
    raise exception '% is no operator, or is revoked already.', revoked_name;
  end if;
end $$;
revoke execute on function revoke_operator(text, text, text, text) from public;
grant execute on function revoke_operator(text, text, text, text) to corridor_operator;

-- A request that may be executed now: of an operator who still may, and recorded within an hour, which
-- is longer than a command takes. Whoever reaches Temporal cannot bring up an old one.
create function standing_request(request text, payout text) returns setof operator_requests
language sql stable set search_path = pg_catalog, public, pg_temp as $$
  select r.* from operator_requests r join operators o on o.name = r.operator
   where r.id = request and r.payout_id = payout and r.created_at > now() - interval '1 hour'
     and o.revoked_at is null and o.role >= role_for(r.command)
$$;

-- What the customer has asked of the API: a workflow cancels for nobody else than them and operators.
alter table payouts add column cancel_requested_at timestamptz(3);
grant update (cancel_requested_at) on payouts to corridor_api;

-- What an operator has done about a payout is what they have requested, and a proposal is approved by
-- another operator than the one who made it, while both may. About anything else than a payout only
-- record_command writes, as the owner. A worker that invents any of these is refused.
create or replace function require_request() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  if new.subject_id not like 'po\_%' and current_user = (
      select pg_get_userbyid(relowner) from pg_class where oid = tg_relid) then
    return new;
  end if;
  if not exists (select from standing_request(new.id, new.subject_id) r
          where (r.operator, r.reason, r.command) = (new.operator, new.reason, new.command)) then
    raise check_violation using message = format('%s has no request like it', new.id);
  end if;
  if new.approves is not null and not exists (
        select from operator_actions p join operators o on o.name = p.operator and o.revoked_at is null
         where p.id = new.approves and p.id = new.command ->> 'proposal'
           and p.outcome = 'proposed' and p.subject_id = new.subject_id and p.operator <> new.operator) then
    raise check_violation using
      message = format('%s approves no proposal of another person', new.id);
  end if;
  return new;
end $$;
drop trigger asked on operator_actions;
create trigger asked before insert on operator_actions
  for each row when (new.actor_kind = 'operator') execute function require_request();
