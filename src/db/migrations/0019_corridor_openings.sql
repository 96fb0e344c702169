-- Why: a bank stops paying a currency, or sanctions forbid it, at once or from a day on, and a release
-- is no way to react. A rule closes or opens corridors, of one currency or of a pair, from a moment on.
-- Of the rules for the same currencies the one that began last counts, and a corridor is open unless
-- one of those closes it.

create table corridor_openings (
  id bigint generated always as identity primary key,
  -- Null is any.
  source text check (source ~ '^[A-Z]{3}$'),
  destination text check (destination ~ '^[A-Z]{3}$'),
  is_open boolean not null,
  valid_from timestamptz(3) not null default now(),
  check (num_nonnulls(source, destination) > 0)
);
grant insert on corridor_openings to corridor_operator;
create trigger append_only before update or delete on corridor_openings
  for each row execute function refuse_change();
create trigger append_only_all before truncate on corridor_openings
  for each statement execute function refuse_change();

-- Writes the table anew; there is a line for each command of a person.
alter table operator_actions alter column subject_type set expression as
  (case split_part(subject_id, '_', 1)
    when 'po' then 'payout' when 'bat' then 'batch' when 'acc' then 'account' when 'key' then 'api_key'
    when 'terms' then 'terms' when 'bnf' then 'beneficiary' when 'mk' then 'master_key'
    when 'corridor' then 'corridor' else 'rate' end);
