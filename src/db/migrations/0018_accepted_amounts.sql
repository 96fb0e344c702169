-- Why: a payout is pending or accepted, and the code reads it as one of the two. With one of the
-- accepted amounts missing it would be neither.

alter table payouts add check (
  num_nonnulls(source_minor, fee_minor, net_minor, receive_minor, mid_value_minor, rate, mid)
    in (0, 7)
  and (source_minor is null or (source_currency is not null and destination_currency is not null)));
