-- Why: a rail that uses an id of an event twice, for facts that differ, has said both: one of them must
-- not be taken for a repetition of the other. What they come to is the reducer's to say. Text and time are
-- not part of what is said: a bank that states its attempts repeats itself.

alter table rail_inbox drop constraint rail_inbox_rail_rail_event_id_key;
create unique index rail_inbox_once on rail_inbox
  (rail, rail_event_id, jsonb_hash_extended(fact - '{at,reason}'::text[], 0));

-- To disable an endpoint must not take longer than a statement may, however many groups wait for it: what
-- is more than 500 of them (25,000 deliveries) nobody claims any longer. The sweep makes deliveries of
-- them in some seconds, and those of an endpoint that is gone are canceled when they are due.
create or replace function cancel_delivery_groups() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  perform end_delivery_groups(
    array(select id from delivery_groups where endpoint_id = new.id order by id limit 500),
    'canceled', false);
  return null;
end $$;
