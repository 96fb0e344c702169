-- Why: a hold is released only on proof that covers the rail's own time and memory. The rail's
-- time to settle counts from the last time the order was sent, so that time is kept. And a void
-- is an effect outside of the database: what it is to make of the payout is written before the
-- rail is asked, so that whichever process sees the void first writes the same end.

alter table payouts
  -- The last time the order may have been sent; the first is submit_started_at.
  add last_sent_at timestamptz(3),
  -- The end that a void begun at the rail leads to; cleared when the rail says it is too late.
  add void_intent text check (void_intent in ('canceled', 'failed'));

-- A key could be sent again for 23 hours: rows from before are taken at their latest.
update payouts set last_sent_at = submit_started_at + interval '23 hours'
 where submit_started_at is not null;
