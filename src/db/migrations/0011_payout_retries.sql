-- Why: who repeats a payout that ended without a payment may do so twice, in two places at once. A
-- payout therefore names the one that it repeats, and each is repeated at most once; a repetition that
-- ends without a payment as well is itself repeated.

alter table payouts add column retry_of text references payouts deferrable;
create unique index payouts_retry_of on payouts (retry_of) where retry_of is not null;
grant insert (retry_of) on payouts to corridor_api;

create trigger asked_retry before update of retry_of on payouts
  for each statement execute function refuse_edit('what was asked of a payout is frozen');
