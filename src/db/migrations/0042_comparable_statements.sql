-- Why: a bank may put more under one key than a bigint holds, and lines of a closed day never change. Two
-- such lines kept all statements from being compared with the ledger for ever. A sum that is larger now
-- counts as the largest bigint, which no sum of the ledger is, so it is still a difference.
create or replace view statement_breaks as
select coalesce(s.rail, l.rail) as rail, coalesce(s.rail_key, l.payout_id) as payout_id,
       coalesce(s.direction, l.direction) as direction,
       case when l.payout_id is null and p.id is null then 'no such payout'
            when l.payout_id is null then 'not in the ledger'
            when s.rail_key is null then 'not on the statement'
            else 'amounts differ' end as kind,
       s.amount_minor as bank_minor, s.currency as bank_currency,
       l.amount_minor as ledger_minor, l.currency as ledger_currency,
       coalesce(s.booked_at, l.booked_at) as since
  from (select rail, rail_key, direction, currency,
               least(sum(amount_minor), 9223372036854775807)::bigint as amount_minor,
               min(booked_at) as booked_at, min(statement_date) as statement_date
          from statement_entries group by rail, rail_key, direction, currency) s
  full join (select rail, payout_id, direction, currency, sum(amount_minor)::bigint as amount_minor,
                    min(booked_at) as booked_at
               from ledger_movements group by rail, payout_id, direction, currency
             having sum(amount_minor) <> 0) l
    on l.rail = s.rail and l.payout_id = s.rail_key and l.direction = s.direction
  left join payouts p on p.id = s.rail_key
 where (s.rail_key is null and exists (select from statements c where c.rail = l.rail
          and c.statement_date > (l.booked_at at time zone 'UTC')::date))
    or (l.payout_id is null and (p.id is null or exists (select from statements c
          where c.rail = s.rail and c.statement_date >= s.statement_date)))
    or s.amount_minor <> l.amount_minor or s.currency <> l.currency;
