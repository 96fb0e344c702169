-- Why: a mistaken correction could only be undone by another one. The opposite of one that moved
-- rail_settlement counts as money that came back, which the bank's statement shows as a line of its own, so
-- the difference between the bank and the ledger stayed. Two people may reverse such a
-- correction now, as any other entry; a reversal itself is not reversed.
create or replace function agreed_postings(of_payout text, agreed jsonb)
returns table (account text, currency text, amount bigint) language sql stable
set search_path = pg_catalog, public, pg_temp as $$
  select b ->> 'account', b ->> 'currency', (b ->> 'amountMinor')::bigint
    from jsonb_array_elements(agreed -> 'postings') b where agreed ->> 'kind' = 'book'
  union all
  select l.account, p.destination_currency, l.sign * (agreed ->> 'amountMinor')::bigint
    from payouts p, (values ('rail_settlement', -1), ('suspense', 1)) l (account, sign)
   where p.id = of_payout and agreed ->> 'kind' = 'lateReturn'
  union all
  select l.account, p.destination_currency, l.sign * (
           select sum(s.amount_minor)::bigint
             from ledger_entries e join ledger_postings s on s.entry_id = e.id
             join ledger_accounts a on a.id = s.ledger_account_id and a.kind = 'suspense'
            where e.payout_id = of_payout and s.currency = p.destination_currency)
    from payouts p, (values ('losses', 1), ('suspense', -1)) l (account, sign)
   where p.id = of_payout and agreed ->> 'kind' = 'clearSuspense' and agreed ->> 'charge' = 'house'
  union all
  select l.account, l.currency, l.amount
    from payouts p cross join lateral (
           values ('available', p.source_currency, -p.net_minor),
                  ('available', p.source_currency, -p.fee_minor),
                  ('suspense', p.destination_currency, p.receive_minor)) l (account, currency, amount)
   where p.id = of_payout and agreed ->> 'kind' = 'clearSuspense'
     and agreed ->> 'charge' = 'customer' and l.amount <> 0
  union all
  -- The hold that a settlement has used up is over: the customer has it back.
  select case when e.kind = 'settle' and a.kind = 'held' then 'available' else a.kind end,
         s.currency, -s.amount_minor
    from ledger_entries e join ledger_postings s on s.entry_id = e.id
    join ledger_accounts a on a.id = s.ledger_account_id
   where e.payout_id = of_payout and agreed ->> 'kind' = 'reverse'
     and e.id::text = agreed ->> 'entry'
     and e.reverses is null
     and e.kind in ('settle', 'return', 'late_payment', 'late_return', 'suspense_clear', 'correction')
$$;
