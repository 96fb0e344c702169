-- Why: a bank that gave the events of two payouts one id, or sent an event again with the right order, was
-- taken to repeat itself, and what it said of the second order was lost. An event is the same only if it
-- is about the same order.
create unique index rail_inbox_once_by_order on rail_inbox
  (rail, rail_event_id, rail_key, jsonb_hash_extended(fact - '{at,reason}'::text[], 0));
