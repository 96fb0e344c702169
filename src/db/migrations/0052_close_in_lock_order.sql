-- Closing an account locked its row before its balances, while settlements lock the balances first: the two
-- could deadlock for a second, after which one of them was rolled back and retried. The balances come first.

-- Freezes, opens or closes an account. A freeze locks only the row of the account, in a mode that no foreign
-- key waits for: it neither waits for payouts nor stops them, and applies to each later decision. Only a
-- frozen account can be closed. Once its balances are locked, the decisions from before the freeze have
-- ended, and later ones accept nothing, so what is checked stays true. A parked payout may still move money,
-- whatever its status is. A closed account stays closed: it has nothing open and no money. Its history
-- stays, and a payout that comes back later is still credited.
create or replace function set_account_state(changed_id text, wanted text) returns void language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  present text;
  owned text;
begin
  if wanted = 'closed' and exists (select from accounts where id = changed_id and state = 'frozen') then
    perform await_decisions(changed_id);
  end if;
  select state into strict present from accounts where id = changed_id for no key update;
  if present = wanted then
    raise exception '% is % already.', changed_id, wanted;
  elsif present = 'closed' then
    raise exception '% is closed, and stays closed.', changed_id;
  elsif wanted = 'closed' then
    if present = 'open' then
      raise exception '% is open; freeze it first.', changed_id;
    end if;
    select id into owned from payouts
     where account_id = changed_id
       and (status in ('pending', 'processing', 'sent') or attention_at is not null) limit 1;
    if found then
      raise exception '% has payouts that are not final or wait for an operator, such as %.',
        changed_id, owned;
    end if;
    select currency into owned from ledger_balances
     where account_id = changed_id and amount_minor <> 0 limit 1;
    if found then
      raise exception '% has a balance in %; pay it out first.', changed_id, owned;
    end if;
  end if;
  update accounts set state = wanted where id = changed_id;
end $$;
