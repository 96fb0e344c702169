-- Why: events go only to a receiver that has shown that it wants them: who mistypes a URL, or enters
-- somebody else's, must not have our events sent there. So a new endpoint is unverified until it has
-- answered a challenge. Endpoints of before stay as they are.

alter table webhook_endpoints
  drop constraint webhook_endpoints_status_check,
  add constraint webhook_endpoints_status_check
    check (status in ('unverified', 'enabled', 'disabled'));

-- A challenge or a test: the row is the request, a worker sends it once and writes what came of it.
-- What an account has sent within an hour, to one host and to all, is counted here, for all processes
-- of the API.
create table webhook_probes (
  -- The webhook-id of the message.
  id text primary key check (id ~ '^prb_'),
  account_id text not null references accounts deferrable,
  endpoint_id text not null references webhook_endpoints deferrable,
  kind text not null check (kind in ('challenge', 'test')),
  -- Where it is sent: an endpoint may have another URL by the time of the answer.
  url text not null,
  -- Without a port: the ports of a host must not be counted apart.
  host text not null,
  created_at timestamptz(3) not null default now(),
  -- Set before the message is sent, so that it is never sent twice.
  begun_at timestamptz(3),
  -- Null until it is known what came of it; as the API shows it.
  outcome jsonb
);
create index on webhook_probes (account_id, created_at);
-- One that was not begun is added anew, and goes where the endpoint is by then.
grant insert, update (created_at, url, host) on webhook_probes to corridor_api;
grant update, delete on webhook_probes to corridor_worker;
