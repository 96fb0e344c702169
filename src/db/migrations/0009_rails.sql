-- Why: what a rail reports is stored before a workflow is woken, and what the bank's statement says is
-- kept beside what the ledger says, so that every difference is a row with an age.

-- What rails have reported. Order and duplicates do not matter. A fact is applied when its row says so,
-- or its payout's (applied_facts): one that moves the payout is written nowhere else.
create table rail_inbox (
  id bigint generated always as identity primary key,
  rail text not null,
  rail_event_id text not null,
  rail_key text not null,
  -- Null when the rail names a key that we never gave it. No foreign key: it is read from the payouts.
  payout_id text,
  fact jsonb not null,
  received_at timestamptz(3) not null default now(),
  applied_at timestamptz(3),
  outcome text,
  unique (rail, rail_event_id)
);
-- Of all rows, not only of those that were not applied: what has moved its payout stays without
-- `applied_at`, so both hold nearly the same, and an operator looks at one payout's among a million.
create index on rail_inbox (payout_id);
create trigger said before update of id, rail, rail_event_id, rail_key, payout_id, fact or delete
    on rail_inbox
  for each statement execute function refuse_edit('what a rail has said is never changed');
grant insert on rail_inbox to corridor_api;
grant update (applied_at, outcome) on rail_inbox to corridor_worker;

-- Statements that the bank has closed: nothing is missing from them any more.
create table statements (
  rail text not null,
  statement_date date not null,
  read_at timestamptz(3) not null default now(),
  primary key (rail, statement_date)
);
create trigger append_only before update or delete on statements
  for each row execute function refuse_change();
grant insert on statements to corridor_worker;

-- A line is what the bank has put there, so its place identifies it: two debits with one reference
-- are two. While a day is open its lines are replaced whenever it is read; once closed they stay.
create table statement_entries (
  rail text not null,
  statement_date date not null,
  line int not null check (line > 0),
  bank_reference text not null,
  direction text not null check (direction in ('debit', 'credit')),
  rail_key text not null,
  currency text not null,
  amount_minor bigint not null check (amount_minor > 0),
  booked_at timestamptz(3) not null,
  primary key (rail, statement_date, line)
);
create index on statement_entries (rail_key);
grant insert, delete on statement_entries to corridor_worker;

create function keep_closed_days() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  if exists (select from changed join statements using (rail, statement_date)) then
    raise exception 'the statement of a closed day is never changed';
  end if;
  return null;
end $$;
create trigger open_days_added after insert on statement_entries
  referencing new table as changed for each statement execute function keep_closed_days();
create trigger open_days_removed after delete on statement_entries
  referencing old table as changed for each statement execute function keep_closed_days();
create trigger replaced before update on statement_entries
  for each statement execute function refuse_edit('the lines of a day are replaced, not edited');

-- The days of a rail without a closed statement, from the one before its first payout, as clocks
-- differ. At most a month of them, so that one run ends; and half of them from each end, so that days
-- that a bank never closes do not hide the newest ones, nor the newest ones those.
create function unread_days(of_rail text) returns setof date language sql stable
set search_path = pg_catalog, public, pg_temp as $$
  -- The first payout by its id, which begins with the time: there is no index for any other.
  with first as (
    select (requested_at at time zone 'UTC')::date - 1 as day
      from payouts where rail = of_rail order by id limit 1
  ), unread as (
    select first.day + n as day, row_number() over (order by n) as oldest,
           row_number() over (order by n desc) as newest
      from first cross join generate_series(0, (now() at time zone 'UTC')::date - first.day) as n
     where not exists (select from statements
             where rail = of_rail and statement_date = first.day + n)
  )
  select day from unread where oldest <= 16 or newest <= 15
$$;

-- What the ledger says the rail has paid (debit) and got back (credit), payout by payout. Corrections
-- move it by their own postings. An entry that is reversed did not happen: it leaves its own
-- direction, where the bank shows nothing either.
create view ledger_movements as
select p.rail, p.id as payout_id, 'debit' as direction, p.destination_currency as currency,
       p.receive_minor as amount_minor, e.created_at as booked_at
  from ledger_entries e join payouts p on p.id = e.payout_id
 where e.kind in ('settle', 'late_payment')
union all
select p.rail, p.id, 'credit', p.destination_currency, p.returned_minor, e.created_at
  from ledger_entries e join payouts p on p.id = e.payout_id
 where e.kind = 'return'
union all
select p.rail, p.id, m.direction, l.currency,
       case m.direction when 'debit' then l.amount_minor else -l.amount_minor end, e.created_at
  from ledger_entries e join payouts p on p.id = e.payout_id
  join ledger_postings l on l.entry_id = e.id
  join ledger_accounts a on a.id = l.ledger_account_id and a.kind = 'rail_settlement'
 cross join lateral (select case when (l.amount_minor > 0) = (e.reverses is null)
                                 then 'debit' else 'credit' end as direction) m
 where e.kind in ('late_return', 'correction');

-- Differences: the sum of what the bank did for a key, so that a payment made twice is one. The
-- ledger books when it is informed, which may be a day after the bank, so an item counts as missing at
-- the bank only when the day after its own is closed as well. What the bank did for a payout that does not
-- exist is a difference at once: after a restore to an earlier moment it is how the lost ones are found.
create view statement_breaks as
select coalesce(s.rail, l.rail) as rail, coalesce(s.rail_key, l.payout_id) as payout_id,
       coalesce(s.direction, l.direction) as direction,
       case when l.payout_id is null and p.id is null then 'no such payout'
            when l.payout_id is null then 'not in the ledger'
            when s.rail_key is null then 'not on the statement'
            else 'amounts differ' end as kind,
       s.amount_minor as bank_minor, s.currency as bank_currency,
       l.amount_minor as ledger_minor, l.currency as ledger_currency,
       coalesce(s.booked_at, l.booked_at) as since
  from (select rail, rail_key, direction, currency, sum(amount_minor)::bigint as amount_minor,
               min(booked_at) as booked_at, min(statement_date) as statement_date
          from statement_entries group by rail, rail_key, direction, currency) s
  full join (select rail, payout_id, direction, currency, sum(amount_minor)::bigint as amount_minor,
                    min(booked_at) as booked_at
               from ledger_movements group by rail, payout_id, direction, currency
             having sum(amount_minor) <> 0) l
    on l.rail = s.rail and l.payout_id = s.rail_key and l.direction = s.direction
  left join payouts p on p.id = s.rail_key
 where (s.rail_key is null and exists (select from statements c where c.rail = l.rail
          and c.statement_date > (l.booked_at at time zone 'UTC')::date))
    or (l.payout_id is null and (p.id is null or exists (select from statements c
          where c.rail = s.rail and c.statement_date >= s.statement_date)))
    or s.amount_minor <> l.amount_minor or s.currency <> l.currency;

-- Keys under which the bank has paid this amount since a day, and whose sum is not what the ledger
-- says; without an amount and a currency, whatever it has paid. That the key was paid is not enough: the bank may have booked another order's debit under it.
create function unmatched_debits(of_rail text, of_currency text, amount bigint, since date)
returns setof text language sql stable
set search_path = pg_catalog, public, pg_temp as $$
  select s.rail_key from statement_entries s
   where s.rail = of_rail and s.direction = 'debit'
     and (of_currency is null or s.currency = of_currency)
     and s.rail_key in (select d.rail_key from statement_entries d
           where d.rail = of_rail and d.direction = 'debit' and d.statement_date >= since
             and (of_currency is null or d.currency = of_currency)
             and (amount is null or d.amount_minor = amount))
   group by s.rail_key, s.currency
  having sum(s.amount_minor) <> coalesce((
           select sum(m.amount_minor) from ledger_movements m
            where m.rail = of_rail and m.payout_id = s.rail_key and m.direction = 'debit'
              and m.currency = s.currency), 0)
$$;
