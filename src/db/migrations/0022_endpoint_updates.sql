-- Why: an endpoint outlives the URL, the events and the secret that it was created with, and whoever has
-- several of them needs to know which is for what.

alter table webhook_endpoints add column description text check (length(description) <= 200);
