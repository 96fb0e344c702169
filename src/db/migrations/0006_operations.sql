-- Why: a person who moves money leaves a trace that nobody can change, and above a sum needs
-- a second person. And what the bank's statement says is kept beside what the ledger says, so
-- that every difference is a row with an age and not a feeling.

create table operator_actions (
  id text primary key check (id ~ '^op_'),
  payout_id text not null references payouts,
  operator text not null check (operator <> ''),
  reason text not null check (reason <> ''),
  command jsonb not null,
  outcome text not null check (outcome in ('done', 'refused', 'proposed')),
  detail text not null,
  -- The proposal that this action has approved and carried out.
  approves text references operator_actions,
  created_at timestamptz(3) not null default now()
);
create index on operator_actions (payout_id, id);
-- A proposal is carried out once.
create unique index on operator_actions (approves) where outcome = 'done';
create trigger append_only before update or delete on operator_actions
  for each row execute function refuse_change();
create trigger append_only_all before truncate on operator_actions
  for each statement execute function refuse_change();

create table statement_entries (
  rail text not null,
  bank_reference text not null,
  direction text not null check (direction in ('debit', 'credit')),
  rail_key text not null,
  currency text not null,
  amount_minor bigint not null check (amount_minor > 0),
  booked_at timestamptz(3) not null,
  statement_date date not null,
  primary key (rail, bank_reference, direction)
);
create index on statement_entries (rail_key);

-- Statements that the bank has closed: nothing is missing from them any more.
create table statements (
  rail text not null,
  statement_date date not null,
  read_at timestamptz(3) not null default now(),
  primary key (rail, statement_date)
);

-- What the ledger says the rail has paid (debit) and got back (credit), payout by payout.
create view ledger_movements as
select p.rail, p.id as payout_id, 'debit' as direction, p.destination_currency as currency,
       p.receive_minor as amount_minor, e.created_at as booked_at
  from ledger_entries e join payouts p on p.id = e.payout_id
 where e.kind in ('settle', 'late_payment')
union all
select p.rail, p.id, 'credit', p.destination_currency, p.returned_minor, e.created_at
  from ledger_entries e join payouts p on p.id = e.payout_id
 where e.kind = 'return';

-- Differences: what the bank did for a key in all, so that a payment made twice is one. The
-- ledger books when it hears, which may be a day after the bank did, so an item counts as
-- missing at the bank only when the day after its own is closed as well.
create view statement_breaks as
select coalesce(s.rail, l.rail) as rail, coalesce(s.rail_key, l.payout_id) as payout_id,
       coalesce(s.direction, l.direction) as direction,
       case when l.payout_id is null then 'not in the ledger'
            when s.rail_key is null then 'not on the statement'
            else 'amounts differ' end as kind,
       s.amount_minor as bank_minor, s.currency as bank_currency,
       l.amount_minor as ledger_minor, l.currency as ledger_currency,
       coalesce(s.booked_at, l.booked_at) as since
  from (select rail, rail_key, direction, currency, sum(amount_minor)::bigint as amount_minor,
               min(booked_at) as booked_at, min(statement_date) as statement_date
          from statement_entries group by rail, rail_key, direction, currency) s
  full join ledger_movements l
    on l.rail = s.rail and l.payout_id = s.rail_key and l.direction = s.direction
 where (s.rail_key is null and exists (select from statements c where c.rail = l.rail
          and c.statement_date > (l.booked_at at time zone 'UTC')::date))
    or (l.payout_id is null and exists (select from statements c where c.rail = s.rail
          and c.statement_date >= s.statement_date))
    or s.amount_minor <> l.amount_minor or s.currency <> l.currency;
