-- Why: what a payout posts is an amount in a currency on an account. The amounts were
-- frozen at acceptance and the other two were not, so a later update could still have made
-- the settlement post something else than was held.
create or replace trigger frozen before update on payouts for each row
  when (old.source_minor is not null and
    (old.account_id, old.source_currency, old.destination_currency, old.source_minor,
     old.fee_minor, old.receive_minor, old.mid_value_minor, old.rate, old.mid, old.rail,
     old.beneficiary_id) is distinct from
    (new.account_id, new.source_currency, new.destination_currency, new.source_minor,
     new.fee_minor, new.receive_minor, new.mid_value_minor, new.rate, new.mid, new.rail,
     new.beneficiary_id))
  execute function refuse_thaw();
