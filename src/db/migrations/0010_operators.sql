-- Why: a person who moves money leaves a trace that no one can change, and needs a second person. Who
-- did something must not depend on a word that anyone can type: the kind of the actor comes from the
-- message, a name has one spelling, and the database itself requires the second person. What an
-- operator writes is kept here and only its id goes through Temporal, whose histories cannot be
-- purged.

-- Invisible characters, and the names of actors that are no person, make no name.
create function is_operator_name(name text) returns boolean language sql immutable as $$
  select name is nfkc normalized and name = btrim(name) and char_length(name) between 1 and 64
     and name !~ '[\u0001-\u001F\u007F-\u00A0\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u2000-\u200F\u2028-\u202F\u205F-\u206F\u2800\u3000\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFFB]'
     and lower(name) not in ('customer', 'system', 'temporal_ui', 'temporal-ui', 'temporal ui')
$$;

-- One line, as it will appear on the terminal of the person who approves: nothing that forges another.
create function is_plain_line(text text) returns boolean language sql immutable
set search_path = pg_catalog, pg_temp as $$
  select btrim(text) <> '' and text !~
    '[\u0001-\u001F\u007F-\u009F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]'
$$;

-- What operators have requested of payouts: the row is the request, its workflow carries it out, and
-- the line in operator_actions has the same id.
create table operator_requests (
  id text primary key check (id ~ '^op_[0-9a-z]{26}$'),
  payout_id text not null references payouts,
  operator text not null check (is_operator_name(operator)),
  reason text not null check (is_plain_line(reason)),
  command jsonb not null,
  created_at timestamptz(3) not null default now()
);
create index on operator_requests (payout_id, id);
create trigger append_only before update or delete on operator_requests
  for each row execute function refuse_change();
create trigger append_only_all before truncate on operator_requests
  for each statement execute function refuse_change();
-- From the command line alone: a worker cannot make itself a person who requests.
grant insert on operator_requests to corridor_operator;

-- One audit for everything that a command can change. A customer's name is their account.
create table operator_actions (
  id text primary key check (id ~ '^op_'),
  -- An id shows what it is of; of rates it is a number, or the name of their provider.
  subject_id text not null,
  subject_type text not null generated always as (case split_part(subject_id, '_', 1)
    when 'po' then 'payout' when 'bat' then 'batch' when 'acc' then 'account'
    when 'key' then 'api_key' else 'rate' end) stored,
  actor_kind text not null check (actor_kind in ('operator', 'customer', 'temporal_ui')),
  operator text not null check (operator <> ''),
  reason text not null check (reason <> ''),
  command jsonb not null,
  outcome text not null check (outcome in ('done', 'refused', 'proposed')),
  detail text not null,
  -- The proposal that this action has approved and carried out.
  approves text references operator_actions,
  created_at timestamptz(3) not null default now(),
  check (actor_kind <> 'operator' or is_operator_name(operator)),
  check (actor_kind <> 'customer' or operator ~ '^acc_'),
  check (is_plain_line(reason)),
  -- A customer and a button can only cancel.
  check (actor_kind = 'operator' or command ->> 'kind' = 'cancel'),
  check (approves is null or (actor_kind = 'operator' and subject_type = 'payout'))
);
create index on operator_actions (subject_id, id);
-- A proposal is carried out once.
create unique index on operator_actions (approves) where outcome = 'done';
create trigger append_only before update or delete on operator_actions
  for each row execute function refuse_change();
create trigger append_only_all before truncate on operator_actions
  for each statement execute function refuse_change();
grant insert on operator_actions to corridor_worker, corridor_operator;

-- What an operator has done about a payout is what they have requested, and a proposal is approved by
-- another person than the one who made it. A worker that invents either is refused.
create function require_request() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  if not exists (select from operator_requests r
          where (r.id, r.payout_id, r.operator, r.reason, r.command)
              = (new.id, new.subject_id, new.operator, new.reason, new.command)) then
    raise check_violation using message = format('%s has no request like it', new.id);
  end if;
  if new.approves is not null and not exists (select from operator_actions p
          where p.id = new.approves and p.id = new.command ->> 'proposal'
            and p.outcome = 'proposed' and p.subject_id = new.subject_id
            and lower(p.operator) <> lower(new.operator)) then
    raise check_violation using
      message = format('%s approves no proposal of another person', new.id);
  end if;
  return new;
end $$;
create trigger asked before insert on operator_actions
  for each row when (new.actor_kind = 'operator' and new.subject_id like 'po\_%')
  execute function require_request();
