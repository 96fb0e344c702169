-- The minimum that such a service has to write for a payout, without constraints, triggers and search
-- indexes: the request and its three status changes, five transfers in two entries, two events, the bank's
-- report, and a delivery.
create table accounts (id text primary key, sequence bigint not null default 0, balance bigint not null);
create table payouts (
  id text primary key, account_id text not null, batch_index int not null unique, status text not null,
  beneficiary text not null, source_currency text not null, amount bigint not null, reference text,
  requested_at timestamptz not null default now(), settled_at timestamptz, attention_at timestamptz,
  fee bigint, net bigint, receive bigint, rate numeric, bank_reference text);
create index on payouts (account_id, requested_at, id);
create table ledger_accounts (id bigint primary key, mode text not null, kind text not null);
create table ledger_entries (
  id bigint generated always as identity primary key, payout_id text not null, kind text not null,
  created_at timestamptz not null default now(), unique (payout_id, kind));
create table ledger_transfers (
  id bigint generated always as identity primary key, entry_id bigint not null, from_id bigint not null,
  to_id bigint not null, currency text not null, amount bigint not null);
create index on ledger_transfers (entry_id);
create view ledger_postings as
  select from_id as ledger_account_id, currency, -amount as amount_minor from ledger_transfers
  union all select to_id, currency, amount from ledger_transfers;
create table events (
  id text primary key, account_id text not null, sequence bigint not null, type text not null,
  subject_id text not null, data json not null, created_at timestamptz not null default now(),
  unique (account_id, sequence));
create table inbox (
  id bigint generated always as identity primary key, event_id text not null unique,
  payout_id text not null, fact jsonb not null, applied_at timestamptz);
create index on inbox (payout_id) where applied_at is null;
create table deliveries (
  event_id text primary key, status text not null default 'pending', delivered_at timestamptz);
