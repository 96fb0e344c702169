-- Why: the accounts of the service itself add up what all customers move. Money that test accounts were
-- given came from one of them, and more of it than a bigint holds kept all balances, those of live
-- accounts too, from being compared with their postings for ever. Only customers' sums are cast now: each
-- is what a balance holds.
create or replace view balance_breaks as
select a.account_id, a.kind, a.currency, b.amount_minor as balance_minor,
       coalesce(p.amount_minor, 0)::bigint as postings_minor
  from ledger_accounts a
  left join ledger_balances b on b.ledger_account_id = a.id
  left join (select ledger_account_id, sum(amount_minor) as amount_minor
               from ledger_postings group by ledger_account_id) p on p.ledger_account_id = a.id
 where a.account_id is not null and b.amount_minor is distinct from coalesce(p.amount_minor, 0);
