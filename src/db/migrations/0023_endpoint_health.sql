-- Why: an endpoint that has taken nothing for a while costs one request at a time, however many events
-- wait for it; one that has taken nothing for five days is disabled, and the account's other endpoints
-- are sent an event about it.

alter table webhook_endpoints
  -- Failed attempts since the last one that succeeded, when they began, and when the last of them was.
  add column failures int not null default 0 check (failures >= 0),
  add column failing_since timestamptz(3),
  add column failed_at timestamptz(3);

alter table events drop constraint events_check, add check (
  subject_id ~ case when type like 'batch.%' then '^bat_'
                    when type like 'webhook_endpoint.%' then '^we_' else '^po_' end);
