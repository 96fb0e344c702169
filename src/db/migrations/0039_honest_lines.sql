-- Why: an operator with the database login calls our functions with arguments of their own. By another verb
-- than add and roll an admin gave a key that no approval counted as given, and so approved for themselves at
-- once. A line could say that a worker had done what nobody did, or take the id of another's request,
-- which was then answered and not carried out. And a command could turn around what is read before it is
-- approved. Besides, a proposal was carried out although its operator had lost the role for it meanwhile.
-- Rows that stand are not looked at again.

-- key_givers sees these alone; a check that is null passes.
alter table operator_actions
  add constraint operator_actions_of_a_key check (subject_id not like 'operator\_%'
    or coalesce(command ->> 'kind' in
      ('operators first', 'operators add', 'operators roll', 'operators revoke', 'sign-in'), false)) not valid,
  -- As text it is one line, in which control characters are escaped.
  add constraint operator_actions_as_read
    check (is_plain_line(subject_id) and is_plain_line(command::text)) not valid;
alter table operator_requests
  add constraint operator_requests_as_read check (is_plain_line(command::text)) not valid;
-- Everybody gives themselves the end of their key, which stands in the list of all operators.
alter table operators
  add constraint operators_as_listed check (last_four ~ '^[0-9A-Za-z]{4}$') not valid;

-- As before, but not of a payout: that line is the worker's, who has carried out the request.
create or replace function record_command(operator_key text, id text, subject text, reason text,
  command jsonb)
returns text language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  by_name text := operator_of(operator_key, role_for(command));
begin
  if subject like 'po\_%' then
    raise check_violation using message = format('%s is about a payout, and not of its worker', id);
  end if;
  insert into operator_actions (id, subject_id, actor_kind, operator, reason, command, outcome, detail)
  values (id, subject, 'operator', by_name, reason, command, 'done', '');
  return by_name;
end $$;

-- As before, but the id of a request is for the line of what it asks for, and who has proposed still may.
create or replace function require_request() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  if new.subject_id not like 'po\_%' and current_user = (
      select pg_get_userbyid(relowner) from pg_class where oid = tg_relid)
      and not exists (select from operator_requests where id = new.id) then
    return new;
  end if;
  if not exists (select from standing_request(new.id, new.subject_id) r
          where (r.operator, r.reason, r.command) = (new.operator, new.reason, new.command)) then
    raise check_violation using message = format('%s has no request like it', new.id);
  end if;
  if new.approves is not null and not exists (
        select from operator_actions p join operators o on o.name = p.operator
           and o.revoked_at is null and o.role >= role_for(p.command)
         where p.id = new.approves and p.id = new.command ->> 'proposal'
           and p.outcome = 'proposed' and p.subject_id = new.subject_id and p.operator <> new.operator) then
    raise check_violation using
      message = format('%s approves no proposal of another person', new.id);
  end if;
  return new;
end $$;
