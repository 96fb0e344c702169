-- Why: see 0034; this index refuses what that one takes. A release that names it in `on conflict` stores no
-- callback from here on, and the bank sends them again. None was made.
drop index rail_inbox_once;
