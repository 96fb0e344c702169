-- Why: a key that leaks should open as little as possible and for no longer than it must, and
-- a key is changed without a moment in which none works. So a key has scopes, may expire, and
-- has a name: the old and the new key of one name work side by side while it is rolled.

alter table api_keys
  add name text not null default 'default' check (name ~ '^[A-Za-z0-9._-]{1,64}$'),
  add scopes text[] not null default '{read,write}' check (
    cardinality(scopes) > 0 and scopes <@ '{read,write,payouts:create,webhooks}'),
  add expires_at timestamptz(3),
  -- To the minute: whether anybody still uses a key is asked before it is revoked.
  add last_used_at timestamptz(3);
