-- Why: the rule by which a payout leaves its chunk was written twice, for requests of customers and of operators,
-- and the operators' copy did not wait for a decision under way. Both call one function now.

-- Moves a payout out of its chunk, so that its own workflow can execute a request. Returns whether it stays
-- because it is undecided: it is decided in the order of its batch. Locks the chunk first, as those who store
-- facts or hand items over do, then the payout, so that it goes by the outcome of a decision under way. The row
-- is due after the time of `step` in db/wakeTimes.ts, in case its workflow is not started.
create function take_over(payout text) returns boolean language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
declare
  is_undecided boolean;
begin
  perform from payouts p
     join batch_chunks c on c.batch_id = p.batch_id and c.batch_id || '/' || c.number = p.driver
    where p.id = payout for no key update of c;
  select driver <> p.id and attention_at is null and status = 'pending' into is_undecided
    from payouts p where p.id = payout for no key update;
  update payouts p set driver = p.id, wake_at = now() + interval '5 seconds'
   where p.id = payout and driver <> p.id and not is_undecided;
  return coalesce(is_undecided, false);
end $$;

-- As before, with the rule above.
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
  perform take_over(payout);
end $$;
