-- Why: a redelivery by a range of sequences also brings what was written while an endpoint was disabled,
-- or before it existed. No delivery was made of that: the API adds it, as the worker does for new events.

grant insert on deliveries to corridor_api;
