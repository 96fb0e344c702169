-- Parked test payouts could fill the rows that are counted for alerts, and hide live ones. Each mode is read
-- separately now. Nothing has been released, so no table is too large for `create index`.

create index payouts_parked on payouts (mode, attention_at) where attention_at is not null;
drop index payouts_attention_at_idx;
