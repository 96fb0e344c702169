-- Why: an endpoint outlives the URL, the events and the secret that it was created with, and whoever has
-- several of them needs to know which is for what. Who reads a backup must not be able to sign as we
-- do, so secrets are sealed with the key of their account.

do $$ begin
  if exists (select from webhook_endpoints) then
    raise exception 'webhook_endpoints has secrets in plain text, which SQL cannot encrypt: recreate the database';
  end if;
end $$;

alter table webhook_endpoints
  drop column secret,
  add column description text check (length(description) <= 200),
  -- The number of the present secret, and since when it is: its owner is shown it for an hour.
  add column secret_number int not null default 1 check (secret_number > 0),
  add column secret_since timestamptz(3) not null default now(),
  -- Until then the secret before it signs as well.
  add column previous_secret_until timestamptz(3);

-- At most two of an endpoint. A table of its own, so that no person reads what signs.
create table webhook_secrets (
  endpoint_id text not null references webhook_endpoints deferrable,
  number int not null,
  sealed bytea not null,
  primary key (endpoint_id, number)
);
create trigger append_only before update on webhook_secrets
  for each statement execute function refuse_edit('a secret never changes: a rotation adds one');
grant insert, delete on webhook_secrets to corridor_api;
revoke select on webhook_secrets from corridor_operator;
