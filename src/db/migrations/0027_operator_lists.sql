-- Why: an operator looks at one payout among a million, with what the rail has reported of it. A Bloom
-- filter for each megabyte of the inbox finds that in some milliseconds, and costs a write next to
-- nothing: a tree would cost every callback another two entries.
create index rail_inbox_of_payout on rail_inbox using brin (payout_id text_bloom_ops)
  with (pages_per_range = 128, autosummarize = on);
