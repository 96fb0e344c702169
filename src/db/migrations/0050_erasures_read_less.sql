-- Why: an erasure held the beneficiary's row while it read every idempotency key that its account had ever used,
-- ten million of them in a minute, and payouts to that beneficiary waited for it, whole batches included. Only
-- keys of payouts and batches are kept for ever; those of a beneficiary expire, so the index of keys that expire
-- finds them. A payout that the bank has accepted after its submission was lost with the database counts as
-- sent, so its details are kept as long.

create or replace function erase_beneficiary(wanted text) returns void
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
           filter (where coalesce(p.submit_started_at, p.sent_since) is not null) + interval '5 years'
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
   where account_id = erased.account_id and object_id = wanted and expires_at is not null;
end $$;
