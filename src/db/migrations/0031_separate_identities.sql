-- Why: a proposal needs a second person, and an admin can give a key to a name of their own making. Who
-- has seen a key can use it: so for a week an operator approves nothing of somebody who had their key from
-- the same hands, while others see in the audit who gave it.

-- An operator, whoever gave them a key within a week, and whoever gave those theirs. Who replaces their
-- own key has had the one before it.
create function key_givers(of_name text) returns setof text language sql stable
set search_path = pg_catalog, public, pg_temp as $$
  with recursive givers as (
    select of_name as name
    union
    select a.operator from givers g join operator_actions a on a.subject_id = 'operator_' || g.name
     where a.command ->> 'kind' in ('operators add', 'operators roll')
       and a.created_at > now() - interval '7 days'
  )
  select name from givers
$$;
revoke execute on function key_givers(text) from public;

-- As before, but for an approval that is no second person's. The chunk that the payout leaves is locked
-- first: a fact of it that is being stored is there by then, and one that is stored later wakes the
-- payout's own workflow.
create or replace function record_request(operator_key text, id text, payout text, reason text,
  command jsonb)
returns void language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  by_name text := operator_of(operator_key, role_for(command));
  giver text;
begin
  select g into giver
    from operator_actions p cross join lateral (
      select key_givers(p.operator) intersect select key_givers(by_name)) as common (g)
   where p.id = record_request.command ->> 'proposal' and p.operator <> by_name
     and record_request.command ->> 'kind' = 'approve'
   limit 1;
  if giver is not null then
    raise exception '% may not approve this: within the last 7 days % gave a key to one of you or both. '
      'Have an operator approve it whose key is from somebody else.', by_name, giver;
  end if;
  insert into operator_requests (id, payout_id, operator, reason, command)
  values (id, payout, by_name, reason, command);
  perform from payouts p
     join batch_chunks c on c.batch_id = p.batch_id and c.batch_id || '/' || c.number = p.driver
    where p.id = payout for no key update of c;
  update payouts p set driver = p.id, wake_at = now() + interval '5 seconds'
   where p.id = payout and driver <> p.id and (attention_at is not null or status <> 'pending');
end $$;
