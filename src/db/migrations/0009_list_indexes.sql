-- Why: every list is newest first and reads a few rows, whatever it is filtered by and however
-- many there are. An index on payouts is written five times for each payout, because every step
-- of it moves wake_at and no update can be "heap only"; measured with 1,000,000 payouts, one
-- index adds 10 % to what the database does for a batch of 10,000, and one a filter adds 85 %.
-- So payouts gets no index more than it had: status is in the one that lists it (a list of all
-- is merged from the seven statuses), and what never changes is written once, into a table of
-- its own, which costs 13 %.

-- The cursor of a list is the time and, within it, the id: ids alone follow the clocks of
-- whichever process made them.
drop index payouts_account_id_id_idx;
create index payouts_list on payouts (account_id, status, requested_at, id);

-- One row for each thing that a payout can be found by. A digest, as a text of metadata may be
-- longer than an index entry; what is found is compared with the payout itself. No foreign key:
-- payouts are never deleted, and checking it would cost as much as the row.
create table payout_terms (
  term uuid not null,
  requested_at timestamptz(3) not null,
  payout_id text not null,
  primary key (term, requested_at, payout_id)
);

create function payout_term(account_id text, name text, value text) returns uuid
language sql immutable as $$
  select md5(account_id || E'\n' || name || E'\n' || value)::uuid
$$;

create function put_terms() returns trigger language plpgsql as $$
begin
  insert into payout_terms
    select payout_term(p.account_id, t.name, t.value), p.requested_at, p.id
      from added p cross join lateral (values
             ('source_currency', p.source_currency),
             ('destination_currency', p.destination_currency),
             ('beneficiary', p.beneficiary_id),
             ('reference', p.reference),
             ('batch', p.batch_id)) t (name, value)
     where t.value is not null;
  insert into payout_terms
    select payout_term(p.account_id, 'metadata ' || m.key, m.value), p.requested_at, p.id
      from added p cross join lateral jsonb_each_text(p.metadata) m
     where p.metadata <> '{}';
  return null;
end $$;
create trigger terms after insert on payouts
  referencing new table as added for each statement execute function put_terms();

-- A currency that only the decision has found out.
create function put_currencies() returns trigger language plpgsql as $$
begin
  insert into payout_terms
    select payout_term(new.account_id, t.name, t.value), new.requested_at, new.id
      from (values ('source_currency', new.source_currency),
                   ('destination_currency', new.destination_currency)) t (name, value)
     where t.value is not null
    on conflict do nothing;
  return null;
end $$;
create trigger currencies after update of source_currency, destination_currency on payouts
  for each row when ((old.source_currency, old.destination_currency)
    is distinct from (new.source_currency, new.destination_currency))
  execute function put_currencies();

insert into payout_terms
  select payout_term(p.account_id, t.name, t.value), p.requested_at, p.id
    from payouts p cross join lateral (
           values ('source_currency', p.source_currency),
                  ('destination_currency', p.destination_currency),
                  ('beneficiary', p.beneficiary_id),
                  ('reference', p.reference),
                  ('batch', p.batch_id)
           union all
           select 'metadata ' || key, value from jsonb_each_text(p.metadata)) t (name, value)
   where t.value is not null;

-- Rows that change seldom or never afford an index for each filter.
drop index batches_account_id_id_idx;
create index batches_list on batches (account_id, status, created_at, id);

drop index beneficiaries_account_id_id_idx;
create index beneficiaries_list on beneficiaries (account_id, created_at, id)
  where deleted_at is null;
create index beneficiaries_by_currency on beneficiaries (account_id, currency, created_at, id)
  where deleted_at is null;

create index events_by_type on events (account_id, type, created_at, id);

-- The customers' postings are listed: they repeat the kind and the time of their entry, and the
-- postings of the service itself, which are most of them, leave these indexes. Together they
-- are as many entries as the one index that they replace.
alter table ledger_postings add entry_kind text, add created_at timestamptz(3),
  add check ((entry_kind is null) = (created_at is null));
alter table ledger_postings disable trigger append_only;
update ledger_postings p set entry_kind = e.kind, created_at = e.created_at
  from ledger_entries e, ledger_accounts a
 where e.id = p.entry_id and a.id = p.ledger_account_id and a.account_id is not null;
alter table ledger_postings enable trigger append_only;
drop index ledger_postings_ledger_account_id_id_idx;
create index ledger_postings_list on ledger_postings (ledger_account_id, created_at, id)
  where entry_kind is not null;
create index ledger_postings_by_kind on ledger_postings
  (ledger_account_id, entry_kind, created_at, id) where entry_kind is not null;

-- As before, and the two columns; and each account is looked up once, not once a posting.
create or replace function post_entries(
  entry_payouts text[], entry_kinds text[],
  posting_entries int[], modes text[], owners text[], kinds text[],
  currencies text[], amounts bigint[]
) returns void language plpgsql as $$
declare
  entry_ids bigint[];
begin
  with missing as (
    insert into ledger_accounts (mode, account_id, kind, currency)
    select n.mode, n.owner, n.kind, n.currency
      from (select distinct * from unnest(modes, owners, kinds, currencies))
             as n (mode, owner, kind, currency)
     where (select a.id from ledger_accounts a
             where a.mode = n.mode and coalesce(a.account_id, '') = coalesce(n.owner, '')
               and a.kind = n.kind and a.currency = n.currency) is null
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
  with named as materialized (
    select n.*, (select a.id from ledger_accounts a
                  where a.mode = n.mode and coalesce(a.account_id, '') = coalesce(n.owner, '')
                    and a.kind = n.kind and a.currency = n.currency) as id
      from (select distinct * from unnest(modes, owners, kinds, currencies))
             as n (mode, owner, kind, currency)
  )
  insert into ledger_postings
    (entry_id, ledger_account_id, currency, amount_minor, entry_kind, created_at)
    select entry_ids[p.entry], n.id, p.currency, p.amount,
           case when p.owner is not null then entry_kinds[p.entry] end,
           case when p.owner is not null then now() end
      from unnest(posting_entries, modes, owners, kinds, currencies, amounts)
             with ordinality as p (entry, mode, owner, kind, currency, amount, position)
      join named n
        on n.mode = p.mode and coalesce(n.owner, '') = coalesce(p.owner, '')
       and n.kind = p.kind and n.currency = p.currency
     order by p.position;
end $$;
