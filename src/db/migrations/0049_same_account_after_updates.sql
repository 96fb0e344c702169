-- The view named only beneficiaries that were created before. Since details can be updated, an older one can
-- become the duplicate of a newer one, and nobody was warned of it.

create or replace view openable_beneficiaries as
  select b.id, b.account_id, b.currency, b.created_at, b.deleted_at, b.erased_at, b.sealed,
         (select wrapped from beneficiary_keys k where k.beneficiary_id = b.id) as beneficiary_key,
         (select wrapped from account_keys k where k.account_id = b.account_id) as account_key,
         (select master_key_id from account_keys k where k.account_id = b.account_id),
         (select min(o.id) from beneficiaries o
           where o.account_id = b.account_id and o.account_hash = b.account_hash and o.id <> b.id
             and o.deleted_at is null) as same_account_as,
         b.version, b.updated_at
    from beneficiaries b;
