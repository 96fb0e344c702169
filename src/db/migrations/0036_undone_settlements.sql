-- Why: two people could reverse a settlement after its return had given the money back, so the customer had
-- it twice; and what the bank paid after they had reversed first the return and then the settlement was
-- refused, so it was in no book.

-- As before, but for a late payment: the customer has the money back also where the return was reversed
-- before the settlement.
create or replace function check_entries(
  entry_payouts text[], entry_kinds text[], entry_modes text[], entry_owners text[],
  transfer_entries int[], sources text[], targets text[], currencies text[], amounts bigint[]
) returns void language plpgsql
set search_path = pg_catalog, public, pg_temp
-- Payouts are found by their ids and lists are hashed, however long: one plan is right for ever.
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_nestloop = off as $$
declare
  is_owner boolean := session_user = current_user;
  wrong text;
begin
  if 'fund' = any (entry_kinds) and exists (
    select from unnest(transfer_entries, sources, targets) as t (entry, source, target)
      join unnest(entry_kinds, entry_modes) with ordinality as e (kind, mode, number)
        on e.number = t.entry
     where e.kind = 'fund' and not coalesce((e.mode = 'test' or is_owner)
       and t.source = 'funding' and t.target = 'available', false)) then
    raise insufficient_privilege using
      message = format('%s only puts money on test accounts', session_user);
  end if;
  if 'fund' = all (entry_kinds) then
    return;
  end if;
  if not is_owner and not pg_has_role(session_user, 'corridor_worker', 'usage') then
    raise insufficient_privilege using
      message = format('%s only puts money on test accounts', session_user);
  end if;
  -- Sums alone would let pass what goes out and comes back: lines of a customer or of a rail that nothing
  -- has moved.
  if exists (
    select from unnest(transfer_entries, sources, currencies) as s (entry, account, currency)
      join unnest(transfer_entries, targets, currencies) as t (entry, account, currency)
        on (t.entry, t.account, t.currency) = (s.entry, s.account, s.currency)
     where s.account in ('available', 'held', 'rail_settlement')) then
    raise exception 'an entry moves an account in both directions';
  end if;
  with entries as materialized (
    select e.number, e.kind, e.payout, p.status, p.status_reason, p.source_currency,
           p.destination_currency, p.source_minor, p.net_minor, p.receive_minor, p.returned_minor,
           (e.mode, e.owner) = (p.mode, p.account_id) as is_owned,
           case e.kind when 'settle' then 'accept' when 'release' then 'accept'
                       when 'return' then 'settle' end as follows
      from unnest(entry_payouts, entry_kinds, entry_modes, entry_owners)
             with ordinality as e (payout, kind, mode, owner, number)
      left join lateral (select * from payouts where id = e.payout limit 1) p on true
     where e.kind <> 'fund'
  ), sides as (
    select t.number, s.account, t.currency, t.amount * s.sign as amount
      from unnest(transfer_entries, sources, targets, currencies, amounts)
             as t (number, source, target, currency, amount)
     cross join lateral (values (t.source, -1), (t.target, 1)) s (account, sign)
     where s.account in ('available', 'held', 'rail_settlement')
  ), posted as (
    -- The other accounts are the service's own: the rest of the entry balances by them.
    select s.number,
           bool_and(coalesce(s.currency = case s.account when 'rail_settlement'
             then e.destination_currency else e.source_currency end, false)) as fits,
           coalesce(sum(s.amount) filter (where s.account = 'available'), 0)::bigint as available,
           coalesce(sum(s.amount) filter (where s.account = 'held'), 0)::bigint as held,
           coalesce(sum(s.amount) filter (where s.account = 'rail_settlement'), 0)::bigint as rail
      from sides s join entries e on e.number = s.number
     group by s.number
  )
  select format('%s of %s', e.kind, e.payout) into wrong
    from entries e left join posted p on p.number = e.number
    left join entries b on b.payout = e.payout and b.kind = e.follows and b.number < e.number
   where not coalesce(e.is_owned and coalesce(p.fits, true)
     and (e.follows is null or b.number is not null or (
       select s.id from ledger_entries s
        where s.payout_id = e.payout and s.kind = e.follows
          and (select r.id from ledger_entries r where r.reverses = s.id) is null) is not null)
     and case e.kind
     when 'accept' then e.status = 'processing'
       and (available, held, rail) = (-e.source_minor, e.source_minor, 0)
     when 'release' then e.status in ('failed', 'canceled')
       and (available, held, rail) = (e.source_minor, -e.source_minor, 0)
     when 'settle' then e.status in ('settled', 'returned')
       and (available, held, rail) = (0, -e.source_minor, e.receive_minor)
     when 'return' then e.status = 'returned'
       and (available, held, rail) = (e.net_minor, 0, -e.returned_minor)
     -- What the customer has back, also because two people undid the settlement.
     when 'late_payment' then (e.status in ('failed', 'canceled')
         or (e.status = 'returned' and exists (
           select from ledger_entries s join ledger_entries r on r.reverses = s.id
            where s.payout_id = e.payout and s.kind = 'settle')))
       and (available, held, rail) = (0, 0, e.receive_minor)
     when 'late_return' then (available, held) = (0, 0) and rail < 0
     when 'suspense_clear' then p.number is null
       or (available, held, rail) = (-e.source_minor, 0, 0)
     else e.kind = 'correction' end, false)
   limit 1;
  if found then
    raise exception 'an entry is not what its payout comes to: %', wrong;
  end if;
end $$;

-- As before, but for the reversal of a settlement, which the customer gets back: not while they have the
-- same money back by a return.
create or replace function check_correction(
  entry_payouts text[], entry_kinds text[], entry_modes text[],
  sources text[], targets text[], currencies text[], amounts bigint[],
  entry_actions text[], entry_reverses bigint[]
) returns void language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
declare
  agreed jsonb := (
    select proposal.command -> 'correction'
      from operator_actions a join operator_actions proposal on proposal.id = a.approves
     where a.id = entry_actions[1] and a.subject_id = entry_payouts[1] and a.outcome = 'done'
       and proposal.command ->> 'kind' = 'correct');
  expected text[] := array(
    select format('%s %s %s', account, currency, sum(amount))
      from agreed_postings(entry_payouts[1], agreed)
     group by account, currency, amount > 0 order by 1);
  posted text[] := array(
    select format('%s %s %s', s.account, t.currency, sum(t.amount * s.sign))
      from unnest(sources, targets, currencies, amounts) as t (source, target, currency, amount)
     cross join lateral (values (t.source, -1), (t.target, 1)) s (account, sign)
     where agreed ->> 'charge' is distinct from 'customer' or s.account in ('available', 'suspense')
     group by s.account, t.currency, s.sign order by 1);
begin
  if not coalesce(
       cardinality(entry_kinds) = 1
       and entry_kinds[1] = case agreed ->> 'kind'
             when 'lateReturn' then 'late_return' when 'clearSuspense' then 'suspense_clear'
             else 'correction' end
       and entry_reverses[1]::text is not distinct from
             case agreed ->> 'kind' when 'reverse' then agreed ->> 'entry' end
       and posted <> '{}' and posted = expected
       and not exists (
         select from ledger_entries s join ledger_entries back
           on back.payout_id = s.payout_id and back.kind = 'return'
          where s.id = entry_reverses[1] and s.kind = 'settle'
            and not exists (select from ledger_entries r where r.reverses = back.id))
       and (select mode from payouts where id = entry_payouts[1]) = entry_modes[1], false) then
    raise check_violation using
      message = 'a correction is what a second person has approved, and is posted alone';
  end if;
end $$;
