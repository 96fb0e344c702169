-- Why: everything belongs to an account, and an account is test or live for ever. The mode is part
-- of a key that other tables refer to, so that a test payout can never belong to a live account or
-- reach a live rail, whatever the code does.

create table accounts (
  id text primary key check (id ~ '^acc_'),
  mode text not null check (mode in ('test', 'live')),
  name text not null,
  api_version text not null,
  -- The last number given to an event of this account: the feed has no gaps.
  event_sequence bigint not null default 0,
  created_at timestamptz(3) not null default now(),
  unique (id, mode)
);
grant update (api_version) on accounts to corridor_api;
grant update (event_sequence) on accounts to corridor_worker;
grant insert, update (name) on accounts to corridor_operator;

-- A key that leaks should open as little as possible, and for no longer than it must; and a key is
-- changed without a moment in which none works. So a key has scopes and may expire, and the old and
-- the new key of one name work side by side while it is rolled.
create table api_keys (
  id text primary key check (id ~ '^key_'),
  account_id text not null references accounts,
  name text not null default 'default' check (name ~ '^[A-Za-z0-9._-]{1,64}$'),
  scopes text[] not null default '{read,write}' check (
    cardinality(scopes) > 0 and scopes <@ '{read,write,payouts:create,webhooks}'),
  -- SHA-256 of the key: it is shown once and never stored.
  key_hash bytea not null unique check (octet_length(key_hash) = 32),
  last_four text not null,
  created_at timestamptz(3) not null default now(),
  expires_at timestamptz(3),
  revoked_at timestamptz(3),
  -- To the minute: before a key is revoked, one asks whether it is still used.
  last_used_at timestamptz(3)
);
create index on api_keys (account_id);
grant update (last_used_at) on api_keys to corridor_api;
grant insert, update (expires_at, revoked_at) on api_keys to corridor_operator;

-- One key, one request, over all routes of an account. Kept for ever where money moves (expires_at
-- null), 30 days elsewhere.
create table idempotency_keys (
  account_id text not null references accounts,
  key text not null check (length(key) between 1 and 255),
  route text not null,
  -- Keyed digest of each parameter as it was sent, by the parameter's name.
  fingerprints jsonb not null,
  object_id text not null,
  -- The refusal that was answered, if the request was understood and refused.
  refusal jsonb,
  created_at timestamptz(3) not null default now(),
  expires_at timestamptz(3),
  primary key (account_id, key)
);
create index on idempotency_keys (expires_at) where expires_at is not null;
grant insert, update, delete on idempotency_keys to corridor_api;
grant delete on idempotency_keys to corridor_worker;
