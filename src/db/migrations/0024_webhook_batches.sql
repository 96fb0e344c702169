-- Why: a redelivery by a range of sequences also brings what was written while an endpoint was disabled,
-- or before it existed. No delivery was made of that: the API adds it, as the worker does for new events.

grant insert on deliveries to corridor_api;

-- Why: a batch of 10,000 payouts is as many requests to one receiver, and most of what they cost both
-- sides is not the events in them: an endpoint may have up to 100 in one request.

alter table webhook_endpoints add column batching boolean not null default false;
