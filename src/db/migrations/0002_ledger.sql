-- Why: one double-entry ledger is the truth about money. The database itself keeps
-- the three promises nobody may break: a posting is never changed, every entry sums
-- to zero in each of its currencies, and no customer balance falls below zero.

create table ledger_accounts (
  id bigint generated always as identity primary key,
  mode text not null check (mode in ('test', 'live')),
  -- Null for the accounts of the service itself.
  account_id text,
  kind text not null check (kind in ('available', 'held', 'funding', 'fx_position',
    'rail_settlement', 'fee_revenue', 'spread_revenue', 'rounding', 'return_costs', 'suspense')),
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  foreign key (account_id, mode) references accounts (id, mode),
  check ((account_id is not null) = (kind in ('available', 'held'))),
  unique (id, currency)
);

-- An expression that the posting's join can look up: a comparison that treats nulls as equal
-- could not use an index, and would read every account at each posting.
create unique index ledger_accounts_owner on ledger_accounts
  (coalesce(account_id, ''), kind, currency, mode);

-- Only customers have a balance row: a row for the accounts of the service would be
-- locked by every payout there is.
create table ledger_balances (
  ledger_account_id bigint primary key references ledger_accounts,
  account_id text not null references accounts,
  kind text not null,
  currency text not null,
  amount_minor bigint not null default 0 check (amount_minor >= 0),
  unique (account_id, currency, kind)
);

create table ledger_entries (
  id bigint generated always as identity primary key,
  payout_id text,
  kind text not null check (kind in
    ('fund', 'accept', 'settle', 'release', 'return', 'late_payment')),
  created_at timestamptz(3) not null default now(),
  check ((payout_id is null) = (kind = 'fund')),
  -- A step of a payout is posted once, however often it is run.
  unique (payout_id, kind)
);

create table ledger_postings (
  id bigint generated always as identity primary key,
  entry_id bigint not null references ledger_entries,
  ledger_account_id bigint not null,
  currency text not null,
  -- Positive arrives on the account, negative leaves it.
  amount_minor bigint not null check (amount_minor <> 0),
  foreign key (ledger_account_id, currency) references ledger_accounts (id, currency)
);
create index on ledger_postings (entry_id);
create index on ledger_postings (ledger_account_id, id);

create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only: correct it with a new entry', tg_table_name;
end $$;

create trigger append_only before update or delete on ledger_entries
  for each row execute function refuse_change();
create trigger append_only before update or delete on ledger_postings
  for each row execute function refuse_change();
create trigger append_only_all before truncate on ledger_entries
  for each statement execute function refuse_change();
create trigger append_only_all before truncate on ledger_postings
  for each statement execute function refuse_change();

-- A statement trigger sees all postings of a statement at once: it costs a few per
-- cent where the usual deferred row trigger costs nearly half of the throughput.
create function apply_postings() returns trigger language plpgsql as $$
declare
  unbalanced record;
begin
  select entry_id, currency, sum(amount_minor) as difference into unbalanced
    from added group by entry_id, currency having sum(amount_minor) <> 0 limit 1;
  if found then
    raise exception 'entry % does not balance: % is off by %',
      unbalanced.entry_id, unbalanced.currency, unbalanced.difference;
  end if;

  -- Balances are locked in the order of their ids, so that two postings cannot wait
  -- for each other.
  perform 1 from ledger_balances
    where ledger_account_id in (select ledger_account_id from added)
    order by ledger_account_id for no key update;
  update ledger_balances b set amount_minor = b.amount_minor + a.amount_minor
    from (select ledger_account_id, sum(amount_minor)::bigint as amount_minor
            from added group by ledger_account_id) a
    where b.ledger_account_id = a.ledger_account_id;
  return null;
end $$;

create trigger balanced after insert on ledger_postings
  referencing new table as added for each statement execute function apply_postings();

-- Writes a list of entries with their postings and makes the accounts they name.
-- Posting i belongs to the entry number posting_entries[i] (from 1).
create function post_entries(
  entry_payouts text[], entry_kinds text[],
  posting_entries int[], modes text[], owners text[], kinds text[],
  currencies text[], amounts bigint[]
) returns void language plpgsql as $$
declare
  entry_ids bigint[];
begin
  with missing as (
    insert into ledger_accounts (mode, account_id, kind, currency)
    select distinct n.mode, n.owner, n.kind, n.currency
      from unnest(modes, owners, kinds, currencies) as n (mode, owner, kind, currency)
     where not exists (select from ledger_accounts a
             where a.mode = n.mode and coalesce(a.account_id, '') = coalesce(n.owner, '')
               and a.kind = n.kind and a.currency = n.currency)
    on conflict do nothing
    returning id, account_id, kind, currency
  )
  insert into ledger_balances (ledger_account_id, account_id, kind, currency)
    select id, account_id, kind, currency from missing where account_id is not null;

  entry_ids := array(
    select nextval(pg_get_serial_sequence('ledger_entries', 'id'))
      from generate_subscripts(entry_kinds, 1));
  insert into ledger_entries (id, payout_id, kind) overriding system value
    select * from unnest(entry_ids, entry_payouts, entry_kinds);
  insert into ledger_postings (entry_id, ledger_account_id, currency, amount_minor)
    select entry_ids[p.entry], a.id, p.currency, p.amount
      from unnest(posting_entries, modes, owners, kinds, currencies, amounts)
             as p (entry, mode, owner, kind, currency, amount)
      join ledger_accounts a
        on a.mode = p.mode and coalesce(a.account_id, '') = coalesce(p.owner, '')
       and a.kind = p.kind and a.currency = p.currency;
end $$;
