-- A redelivery logs the attempt that has succeeded before it.
grant insert on delivery_attempts to corridor_api;
