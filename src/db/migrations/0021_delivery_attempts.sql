-- Why: "did you send it, and what did we answer?" is the first question about a webhook that is missing.
-- Each attempt is kept with its time and what came of it. Nearly all deliveries succeed at once, so the
-- last attempt's figures stand in the delivery's own row and only a failed attempt costs another one.

-- It is written by the statement that writes its delivery, so a foreign key would prove nothing more.
create table delivery_attempts (
  event_id text not null,
  endpoint_id text not null,
  at timestamptz(3) not null,
  latency_ms int,
  http_status int,
  error text,
  -- How the answer began, as text: 2 KiB, of which each byte may have become a U+FFFD of three.
  answer text check (octet_length(answer) <= 6144),
  next_attempt_at timestamptz(3),
  primary key (event_id, endpoint_id, at)
);
grant insert, delete on delivery_attempts to corridor_worker;

-- An endpoint's deliveries are listed by what became of them. A row enters it once, when it is settled;
-- what is pending has an index already.
create index deliveries_by_outcome on deliveries (endpoint_id, status, event_id)
  where status <> 'pending';
