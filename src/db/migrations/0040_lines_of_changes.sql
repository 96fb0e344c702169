-- Why: whoever had the operators' login and an admin's key could make an API key, or name another operator as
-- the one who accepted a rate, in the transaction of any line at all, such as one that pauses a batch: the
-- audit then showed nothing of it.

-- As before, but the line is about what is changed, of a command that changes such things, and of the
-- operator whom the row names, if it names one.
create or replace function require_operator() returns trigger language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  changed jsonb := case tg_op when 'DELETE' then to_jsonb(old) else to_jsonb(new) end;
  own_id text := changed ->> 'id';
  subjects text[] := case tg_table_name
    when 'terms' then array['terms_' || own_id] when 'corridor_openings' then array['corridor_' || own_id]
    when 'rate_decisions' then array[changed ->> 'rate_id']
    when 'rate_provider' then array[changed ->> 'provider']
    when 'account_keys' then array[changed ->> 'master_key_id']
    when 'beneficiary_keys' then array[changed ->> 'beneficiary_id']
    else array[own_id, changed ->> 'account_id'] end;
  commands text := case tg_table_name
    when 'accounts' then '^account ' when 'api_keys' then '^(keys |account open$)'
    when 'terms' then '^terms ' when 'corridor_openings' then '^corridors ' when 'batches' then '^batches '
    when 'rate_decisions' then '^rates ' when 'rate_provider' then '^rates use$'
    when 'account_keys' then '^master-key ' when 'beneficiary_keys' then '^erase$' else '^limits ' end;
begin
  -- A member that does not inherit can still take on the role. A superuser is one of every role.
  if session_user <> current_user and pg_has_role(session_user, 'corridor_operator', 'member')
      and not (select rolsuper from pg_roles where rolname = session_user)
      and not exists (select from operator_actions a join operators o on o.name = a.operator
          where a.created_at = now()::timestamptz(3) and a.xmin = pg_current_xact_id()::xid
            and o.revoked_at is null and o.role >= tg_argv[0]::operator_role
            and a.command ->> 'kind' ~ commands
            and (a.subject_id = any (subjects) or a.command ->> 'replacedBy' = own_id)
            and coalesce(changed ->> 'operator', a.operator) = a.operator) then
    raise insufficient_privilege using message = format(
      '%s is changed only together with the audit line of an operator with the role %s', tg_table_name,
      tg_argv[0]);
  end if;
  return null;
end $$;
