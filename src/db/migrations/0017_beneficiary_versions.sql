-- Why: an account number is corrected or a name changes, and integrators keep the id. A payout must
-- still go to, and for years show, the details that it was accepted for. So an update makes a version, the
-- one before stays, and a payout has the number of its own.

alter table beneficiaries
  -- A program that updates without end is stopped here.
  add column version int not null default 1 check (version between 1 and 1000),
  -- Since when its details are what they are, if that is not since it was created.
  add column updated_at timestamptz(3);

-- Sealed with the same key as the present details, so that erasing a beneficiary erases them.
create table beneficiary_versions (
  beneficiary_id text not null references beneficiaries deferrable,
  version int not null,
  sealed bytea not null,
  -- When it became the present one; of the first version that is when the beneficiary was created.
  updated_at timestamptz(3),
  primary key (beneficiary_id, version)
);
create trigger append_only before update on beneficiary_versions
  for each statement execute function refuse_edit('versions of a beneficiary never change');

-- The caller has locked the beneficiary and sealed the details as the version after its present one. A
-- function, so that no code path can change details and lose what they were.
create function update_beneficiary(updated_id text, next_sealed bytea, next_hash bytea) returns void
language sql security definer set search_path = pg_catalog, public, pg_temp as $$
  insert into beneficiary_versions
    select id, version, sealed, updated_at from beneficiaries where id = updated_id;
  update beneficiaries
     set sealed = next_sealed, account_hash = next_hash, version = version + 1,
         updated_at = clock_timestamp()
   where id = updated_id;
$$;
revoke execute on function update_beneficiary(text, bytea, bytea) from public;
grant execute on function update_beneficiary(text, bytea, bytea) to corridor_api;

create function forget_versions() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  delete from beneficiary_versions where beneficiary_id = new.id;
  return null;
end $$;
create trigger forgets_versions after update of erased_at on beneficiaries
  for each row execute function forget_versions();

-- Payouts from before were accepted for the first version; others have none until they are accepted.
alter table payouts add column beneficiary_version int default 1;
alter table payouts alter column beneficiary_version drop default;
-- A process of the release before, which knows no versions, accepts nothing from now on.
alter table payouts add check (source_minor is null or beneficiary_version is not null);
grant update (beneficiary_version) on payouts to corridor_worker;
create trigger frozen_version before update of beneficiary_version on payouts for each row
  when (old.source_minor is not null and old.beneficiary_version is distinct from new.beneficiary_version)
  execute function refuse_repricing();

create or replace view openable_beneficiaries as
  select b.id, b.account_id, b.currency, b.created_at, b.deleted_at, b.erased_at, b.sealed,
         (select wrapped from beneficiary_keys k where k.beneficiary_id = b.id) as beneficiary_key,
         (select wrapped from account_keys k where k.account_id = b.account_id) as account_key,
         (select master_key_id from account_keys k where k.account_id = b.account_id),
         (select min(o.id) from beneficiaries o
           where o.account_id = b.account_id and o.account_hash = b.account_hash and o.id < b.id
             and o.deleted_at is null) as same_account_as,
         b.version, b.updated_at
    from beneficiaries b;
