-- Why: a signature by the service's own key (v1a) lets a receiver keep no secret, and costs ten times
-- as much as one by the endpoint's secret: batches pay for it where a receiver wants it.

alter table webhook_endpoints
  -- v1: by the endpoint's secret; v1a: by the service's key as well.
  add column signature text not null default 'v1' check (signature in ('v1', 'v1a'));
