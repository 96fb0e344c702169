-- Why: who a beneficiary is and where they bank is nobody's business but the account's, and a person
-- may ask to be forgotten although payouts, books and backups stay. So the details are encrypted, each
-- beneficiary's with a key of its own: without that row nothing decrypts them, wherever they are kept.
--
--   master key (a secret of the processes) wraps account key wraps beneficiary key seals details
--
-- Rotating the master key rewrites one row an account, and no beneficiary.

do $$ begin
  if exists (select from beneficiaries) then
    raise exception 'beneficiaries has rows in plain text, which SQL cannot encrypt: recreate the database';
  end if;
end $$;

create table account_keys (
  account_id text primary key references accounts,
  -- Which master key wraps it: an id that is computed from the key.
  master_key_id text not null check (master_key_id ~ '^mk_[0-9a-f]{16}$'),
  wrapped bytea not null
);
grant insert on account_keys to corridor_api;
grant update (master_key_id, wrapped) on account_keys to corridor_operator;

-- Wrapped by the account's key. A table of its own, so that a backup of it can be kept for a shorter
-- time than the rest.
create table beneficiary_keys (
  beneficiary_id text primary key references beneficiaries deferrable,
  wrapped bytea not null
);
grant insert on beneficiary_keys to corridor_api;

alter table beneficiaries
  drop column details,
  add column sealed bytea,
  -- A keyed hash of the bank account, by which the same account of the same customer is recognized.
  add column account_hash bytea,
  add column erased_at timestamptz(3),
  add check (num_nulls(sealed, account_hash) = case when erased_at is null then 0 else 2 end),
  add check (erased_at is null or deleted_at is not null);
create index beneficiaries_by_account on beneficiaries (account_id, account_hash, id)
  where deleted_at is null;

-- Beneficiaries with what opens them, but for the master key. Each key is looked up by its own id: a
-- join could be planned to read those of all. `same_account_as` is the oldest other one of the same
-- bank account that the customer has not deleted.
create view openable_beneficiaries as
  select b.id, b.account_id, b.currency, b.created_at, b.deleted_at, b.erased_at, b.sealed,
         (select wrapped from beneficiary_keys k where k.beneficiary_id = b.id) as beneficiary_key,
         (select wrapped from account_keys k where k.account_id = b.account_id) as account_key,
         (select master_key_id from account_keys k where k.account_id = b.account_id),
         (select min(o.id) from beneficiaries o
           where o.account_id = b.account_id and o.account_hash = b.account_hash and o.id < b.id
             and o.deleted_at is null) as same_account_as
    from beneficiaries b;

-- What opens beneficiaries is for the processes that have the master key, and no person's to read.
revoke select on beneficiary_keys, openable_beneficiaries from corridor_operator;

-- Forgets a beneficiary for good; refused while it may still be paid, and for as long as the law wants
-- to know whom a payout has paid: five years after the business relationship, or the occasional
-- transaction, has ended (Directive (EU) 2015/849, Article 40). A payout that never reached a bank has
-- paid nobody. A function, because nobody else may: a role that deletes keys could make any payout
-- impossible to send. A payout that is accepted meanwhile holds the row first, or finds it deleted. A
-- repeat of its request is refused without a word about its details: their digests go as well.
create function erase_beneficiary(wanted text) returns void
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  erased beneficiaries;
  is_open boolean;
  kept_until timestamptz;
begin
  select * into erased from beneficiaries where id = wanted for update;
  if erased.id is null then
    raise exception 'There is no beneficiary %.', wanted;
  elsif erased.erased_at is not null then
    raise exception '% is erased already.', wanted;
  end if;
  select bool_or(p.status in ('pending', 'processing', 'sent') or p.attention_at is not null),
         max(greatest(p.requested_at, p.processing_since, p.sent_since, p.settled_since,
                      p.failed_since, p.canceled_since, p.returned_since))
           filter (where p.submit_started_at is not null) + interval '5 years'
    into is_open, kept_until
    from payout_terms t join payouts p on p.id = t.payout_id
   where t.beneficiary = payout_term(erased.account_id, 'beneficiary', wanted)
     and p.account_id = erased.account_id and p.beneficiary_id = wanted;
  if is_open then
    raise exception '% has payouts that are not final: erase it when they are.', wanted;
  elsif kept_until > now() then
    raise exception '% has had payouts: its details are kept by law until %.', wanted,
      to_char(kept_until at time zone 'UTC', 'YYYY-MM-DD');
  end if;
  delete from beneficiary_keys where beneficiary_id = wanted;
  update beneficiaries
     set sealed = null, account_hash = null, erased_at = now(), deleted_at = coalesce(deleted_at, now())
   where id = wanted;
  update idempotency_keys set fingerprints = '{"erased": ""}'
   where account_id = erased.account_id and object_id = wanted;
end $$;
revoke execute on function erase_beneficiary(text) from public;
grant execute on function erase_beneficiary(text) to corridor_operator;

alter table operator_actions alter column subject_type set expression as
  (case split_part(subject_id, '_', 1)
    when 'po' then 'payout' when 'bat' then 'batch' when 'acc' then 'account' when 'key' then 'api_key'
    when 'terms' then 'terms' when 'bnf' then 'beneficiary' when 'mk' then 'master_key' else 'rate' end);

-- A quote that no payout has used is worth nothing after its 30 seconds; one that was used is the
-- price of its payout.
create index quotes_unused on quotes (expires_at) where used_by is null;
create trigger kept_if_used before delete on quotes
  for each row when (old.used_by is not null or old.expires_at > now() - interval '30 days')
  execute function refuse_edit('a quote that is used stays, and any for 30 days');
grant delete on quotes to corridor_worker;
