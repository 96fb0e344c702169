-- Why: an audit line had to be about what was changed, and of a command that changes such things, but not of
-- the change itself: whoever had the operators' login and an operator's key could open a corridor with a line
-- that closes it, resume a batch with one that pauses it, accept a rate with one that rejects it, and make an
-- API key of an account with one that opens it, and the audit showed the opposite of what was done. The amounts and names in a line are still the operator's word.

-- As in 0040_lines_of_changes.sql, but the command follows from the row as it is after the change.
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
  -- An account gets its first key in the transaction that opens it.
  is_first_key boolean := tg_table_name = 'api_keys' and exists (select from accounts a
    where a.id = changed ->> 'account_id' and a.xmin = pg_current_xact_id()::xid
      and a.created_at = now()::timestamptz(3));
  commands text := case tg_table_name
    when 'accounts' then 'account ' || (changed ->> 'state')
    when 'api_keys' then case
      when tg_op = 'INSERT' then case when is_first_key then 'account open' else 'keys (create|roll)' end
      -- A revoked key stays revoked.
      when to_jsonb(old) ->> 'revoked_at' is not null then null
      when changed ->> 'revoked_at' is null then 'keys roll' else 'keys revoke' end
    when 'terms' then 'terms set'
    when 'corridor_openings' then
      'corridors ' || case when (changed ->> 'is_open')::boolean then 'open' else 'close' end
    when 'batches' then
      'batches ' || case when changed ->> 'paused_at' is null then 'resume' else 'pause' end
    when 'rate_decisions' then 'rates ' || (changed ->> 'outcome')
    when 'rate_provider' then 'rates use' when 'account_keys' then 'master-key rotate'
    when 'beneficiary_keys' then 'erase' when 'payee_delays' then 'limits new-payee'
    else 'limits set' end;
begin
  -- A member that does not inherit can still take on the role. A superuser is one of every role.
  if session_user <> current_user and pg_has_role(session_user, 'corridor_operator', 'member')
      and not (select rolsuper from pg_roles where rolname = session_user)
      and not exists (select from operator_actions a join operators o on o.name = a.operator
          where a.created_at = now()::timestamptz(3) and a.xmin = pg_current_xact_id()::xid
            and o.revoked_at is null and o.role >= tg_argv[0]::operator_role
            and a.command ->> 'kind' ~ ('^(' || commands || ')$')
            and (a.subject_id = any (subjects) or a.command ->> 'replacedBy' = own_id)
            and coalesce(changed ->> 'operator', a.operator) = a.operator) then
    raise insufficient_privilege using message = format(
      '%s is changed only together with the audit line of an operator with the role %s', tg_table_name,
      tg_argv[0]);
  end if;
  return null;
end $$;
