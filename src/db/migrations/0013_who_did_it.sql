-- Why: who did something must not hang on a word that anybody can type. A name was compared
-- with "customer" to decide whether a line was written at all, and two spellings of one name
-- approved each other. So the kind of the actor comes from the message, a name has one spelling,
-- and the database asks for the second person itself. What an operator writes is kept here and
-- only its id goes through Temporal, for a history cannot be purged. And books are corrected by
-- entries of their own, each by two people, where a payout had one entry of each kind at most.

-- Invisible characters, and the names of actors that are no person, make no name.
create function is_operator_name(name text) returns boolean language sql immutable as $$
  select name is nfkc normalized and name = btrim(name) and char_length(name) between 1 and 64
     and name !~ '[\u0001-\u001F\u007F-\u00A0\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u2000-\u200F\u2028-\u202F\u205F-\u206F\u2800\u3000\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFFB]'
     and lower(name) not in ('customer', 'system', 'temporal_ui', 'temporal-ui', 'temporal ui')
$$;

-- One line, as whoever approves a proposal will see it on a terminal: nothing that forges another.
create function is_plain_line(text text) returns boolean language sql immutable
set search_path = pg_catalog, pg_temp as $$
  select btrim(text) <> '' and text !~
    '[\u0001-\u001F\u007F-\u009F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]'
$$;

-- What operators have asked of payouts: the row is the request, its workflow carries it out, and
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
-- Asked at the command line alone: a worker cannot make itself a person who asks.
grant insert on operator_requests to corridor_operator;

-- One audit for everything that a command can change. A customer's name is their account.
alter table operator_actions drop constraint operator_actions_payout_id_fkey;
alter table operator_actions rename column payout_id to subject_id;
alter table operator_actions
  -- An id tells what it is of; of rates it is a number, or the name of their provider.
  add subject_type text not null generated always as (case split_part(subject_id, '_', 1)
    when 'po' then 'payout' when 'bat' then 'batch' when 'acc' then 'account'
    when 'key' then 'api_key' else 'rate' end) stored,
  add actor_kind text not null default 'operator'
    check (actor_kind in ('operator', 'customer', 'temporal_ui'));
alter table operator_actions disable trigger append_only;
update operator_actions set actor_kind = 'temporal_ui' where operator = 'temporal-ui';
alter table operator_actions enable trigger append_only;
alter table operator_actions
  alter actor_kind drop default,
  add check (actor_kind <> 'operator' or is_operator_name(operator)),
  add check (actor_kind <> 'customer' or operator ~ '^acc_'),
  add check (is_plain_line(reason)),
  -- A customer and a button can only cancel.
  add check (actor_kind = 'operator' or command ->> 'kind' = 'cancel');

-- What an operator has done about a payout is what they have asked, and whoever approves is another
-- person than the one who has proposed. A worker that invents either is refused.
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
alter table operator_actions
  add check (approves is null or (actor_kind = 'operator' and subject_type = 'payout'));

alter table ledger_accounts drop constraint ledger_accounts_kind_check,
  add constraint ledger_accounts_kind_check check (kind in ('available', 'held', 'funding',
    'fx_position', 'rail_settlement', 'fee_revenue', 'spread_revenue', 'rounding', 'return_costs',
    'suspense', 'losses'));

alter table ledger_entries
  -- The command that has posted a correction. No foreign keys, which every entry of every payout
  -- would be charged for: post_entries looks, and neither table loses a row.
  add action_id text,
  add reverses bigint,
  drop constraint ledger_entries_kind_check,
  add constraint ledger_entries_kind_check check (kind in ('fund', 'accept', 'settle', 'release',
    'return', 'late_payment', 'late_return', 'suspense_clear', 'correction')),
  add check ((action_id is not null) = (kind in ('late_return', 'suspense_clear', 'correction'))),
  add check (reverses is null or kind = 'correction'),
  drop constraint ledger_entries_payout_id_kind_key;
-- A step of a payout is posted once, and so is each correction.
create unique index ledger_entries_once on ledger_entries (payout_id, kind, coalesce(action_id, ''));
create unique index ledger_entries_reversed_once on ledger_entries (reverses)
  where reverses is not null;
-- What two people have agreed to is one entry, whatever kind it may pass for.
create unique index ledger_entries_agreed_once on ledger_entries (action_id)
  where action_id is not null;

-- As before, and corrections: what they do to the customer and to the rail. The rest two people
-- have agreed to. And a step follows its own: what no hold of the payout covers would be paid with
-- that of another one, and what was not settled, or is settled no more, does not come back.
create or replace function check_entries(
  entry_payouts text[], entry_kinds text[],
  posting_entries int[], modes text[], owners text[], kinds text[],
  currencies text[], amounts bigint[]
) returns void language plpgsql
set search_path = pg_catalog, public, pg_temp
-- Payouts are found by their ids and lists are hashed, however long: one plan is right for ever.
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_nestloop = off as $$
declare
  is_owner boolean := session_user = current_user;
  wrong text;
begin
  if 'fund' = any (entry_kinds) and exists (
    select from unnest(posting_entries, modes, kinds, amounts) as p (number, mode, account, amount)
     where entry_kinds[p.number] = 'fund' and not coalesce((p.mode = 'test' or is_owner)
       and p.account = case when p.amount > 0 then 'available' else 'funding' end, false)) then
    raise insufficient_privilege using
      message = format('%s only puts money on test accounts', session_user);
  end if;
  if 'fund' = all (entry_kinds) then
    return;
  end if;
  if not is_owner and not pg_has_role(session_user, 'corridor_worker', 'usage') then
    raise insufficient_privilege using
      message = format('%s only puts money on test accounts', session_user);
  end if;
  with entries as materialized (
    select e.number, e.kind, e.payout, p.mode, p.account_id, p.status, p.status_reason, p.source_currency,
           p.destination_currency, p.source_minor, p.net_minor, p.receive_minor, p.returned_minor,
           case e.kind when 'settle' then 'accept' when 'release' then 'accept'
                       when 'return' then 'settle' end as follows
      from unnest(entry_payouts, entry_kinds) with ordinality as e (payout, kind, number)
      left join lateral (select * from payouts where id = e.payout limit 1) p on true
     where e.kind <> 'fund'
  ), posted as (
    -- The other accounts are the service's own: the rest of the entry balances by them.
    select p.number,
           bool_and(coalesce(p.mode = e.mode and case p.account
             when 'rail_settlement' then p.currency = e.destination_currency
             else p.owner = e.account_id and p.currency = e.source_currency end, false)) as fits,
           sum(case p.account when 'available' then p.amount else 0 end)::bigint as available,
           sum(case p.account when 'held' then p.amount else 0 end)::bigint as held,
           sum(case p.account when 'rail_settlement' then p.amount else 0 end)::bigint as rail
      from unnest(posting_entries, modes, owners, kinds, currencies, amounts)
             as p (number, mode, owner, account, currency, amount)
      join entries e on e.number = p.number
     where p.account in ('available', 'held', 'rail_settlement')
     group by p.number
  )
  select format('%s of %s', e.kind, e.payout) into wrong
    from entries e left join posted p on p.number = e.number
    left join entries b on b.payout = e.payout and b.kind = e.follows and b.number < e.number
   where not coalesce(e.status is not null and coalesce(p.fits, true)
     and (e.follows is null or b.number is not null or (
       select s.id from ledger_entries s
        where s.payout_id = e.payout and s.kind = e.follows
          and (select r.id from ledger_entries r where r.reverses = s.id) is null) is not null)
     and case e.kind
     when 'accept' then e.status = 'processing'
       and (available, held, rail) = (-e.source_minor, e.source_minor, 0)
     when 'release' then e.status in ('failed', 'canceled')
       and (available, held, rail) = (e.source_minor, -e.source_minor, 0)
     when 'settle' then e.status in ('settled', 'returned')
       and (available, held, rail) = (0, -e.source_minor, e.receive_minor)
     when 'return' then e.status = 'returned'
       and (available, held, rail) = (e.net_minor, 0, -e.returned_minor)
     -- What the customer has back, also because two people undid the settlement.
     when 'late_payment' then (e.status in ('failed', 'canceled')
         or (e.status, e.status_reason) = ('returned', 'corrected'))
       and (available, held, rail) = (0, 0, e.receive_minor)
     when 'late_return' then (available, held) = (0, 0) and rail < 0
     when 'suspense_clear' then p.number is null
       or (available, held, rail) = (-e.source_minor, 0, 0)
     else e.kind = 'correction' end, false)
   limit 1;
  if found then
    raise exception 'an entry is not what its payout comes to: %', wrong;
  end if;
end $$;

-- The postings that two people have agreed to. Of a charge to the customer, what is taken and what
-- it is taken for: the fee and the margin in between are the service's own.
create function agreed_postings(of_payout text, agreed jsonb)
returns table (account text, currency text, amount bigint) language sql stable
set search_path = pg_catalog, public, pg_temp as $$
  select b ->> 'account', b ->> 'currency', (b ->> 'amountMinor')::bigint
    from jsonb_array_elements(agreed -> 'postings') b where agreed ->> 'kind' = 'book'
  union all
  select l.account, p.destination_currency, l.sign * (agreed ->> 'amountMinor')::bigint
    from payouts p, (values ('rail_settlement', -1), ('suspense', 1)) l (account, sign)
   where p.id = of_payout and agreed ->> 'kind' = 'lateReturn'
  union all
  select l.account, p.destination_currency, l.sign * (
           select sum(s.amount_minor)::bigint
             from ledger_entries e join ledger_postings s on s.entry_id = e.id
             join ledger_accounts a on a.id = s.ledger_account_id and a.kind = 'suspense'
            where e.payout_id = of_payout and s.currency = p.destination_currency)
    from payouts p, (values ('losses', 1), ('suspense', -1)) l (account, sign)
   where p.id = of_payout and agreed ->> 'kind' = 'clearSuspense' and agreed ->> 'charge' = 'house'
  union all
  select l.account, l.currency, l.amount
    from payouts p cross join lateral (
           values ('available', p.source_currency, -p.net_minor),
                  ('available', p.source_currency, -p.fee_minor),
                  ('suspense', p.destination_currency, p.receive_minor)) l (account, currency, amount)
   where p.id = of_payout and agreed ->> 'kind' = 'clearSuspense'
     and agreed ->> 'charge' = 'customer' and l.amount <> 0
  union all
  -- The hold that a settlement has used up is over: the customer has it back.
  select case when e.kind = 'settle' and a.kind = 'held' then 'available' else a.kind end,
         s.currency, -s.amount_minor
    from ledger_entries e join ledger_postings s on s.entry_id = e.id
    join ledger_accounts a on a.id = s.ledger_account_id
   where e.payout_id = of_payout and agreed ->> 'kind' = 'reverse'
     and e.id::text = agreed ->> 'entry'
     and e.kind in ('settle', 'return', 'late_payment', 'late_return', 'suspense_clear')
$$;

-- A correction is posted alone, and is what a second person has approved: not of this payout only,
-- but this kind of entry with these postings, in the payout's own mode.
create function check_correction(
  entry_payouts text[], entry_kinds text[], modes text[], kinds text[], currencies text[],
  amounts bigint[], entry_actions text[], entry_reverses bigint[]
) returns void language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
declare
  agreed jsonb := (
    select proposal.command -> 'correction'
      from operator_actions a join operator_actions proposal on proposal.id = a.approves
     where a.id = entry_actions[1] and a.subject_id = entry_payouts[1] and a.outcome = 'done'
       and proposal.command ->> 'kind' = 'correct');
  expected text[] := array(
    select format('%s %s %s', account, currency, amount)
      from agreed_postings(entry_payouts[1], agreed) order by 1);
  posted text[] := array(
    select format('%s %s %s', account, currency, amount)
      from unnest(kinds, currencies, amounts) as p (account, currency, amount)
     where agreed ->> 'charge' is distinct from 'customer' or account in ('available', 'suspense')
     order by 1);
begin
  if not coalesce(
       cardinality(entry_kinds) = 1
       and entry_kinds[1] = case agreed ->> 'kind'
             when 'lateReturn' then 'late_return' when 'clearSuspense' then 'suspense_clear'
             else 'correction' end
       and entry_reverses[1]::text is not distinct from
             case agreed ->> 'kind' when 'reverse' then agreed ->> 'entry' end
       and posted <> '{}' and posted = expected
       and (select mode from payouts where id = entry_payouts[1]) = all (modes), false) then
    raise check_violation using
      message = 'a correction is what a second person has approved, and is posted alone';
  end if;
end $$;

-- As before, and corrections: with the action of the person who approved them. And the time at which
-- it is posted, where it was the time at which the transaction began.
drop function post_entries(text[], text[], int[], text[], text[], text[], text[], bigint[]);
create function post_entries(
  entry_payouts text[], entry_kinds text[],
  posting_entries int[], modes text[], owners text[], kinds text[],
  currencies text[], amounts bigint[],
  entry_actions text[] default null, entry_reverses bigint[] default null
) returns void language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  entry_ids bigint[];
  balance_ids bigint[];
  posted_at timestamptz(3);
begin
  perform check_lists(
    entry_payouts, entry_kinds, posting_entries, modes, owners, kinds, currencies, amounts);
  if not coalesce((entry_actions is null and entry_reverses is null)
       or (is_list(entry_actions, cardinality(entry_kinds))
           and is_list(entry_reverses, cardinality(entry_kinds))), false) then
    raise invalid_parameter_value using message =
      'the lists of entries and postings have to be as long as each other and counted from 1';
  end if;
  perform check_entries(
    entry_payouts, entry_kinds, posting_entries, modes, owners, kinds, currencies, amounts);
  if entry_actions is not null then
    perform check_correction(entry_payouts, entry_kinds, modes, kinds, currencies, amounts,
      entry_actions, entry_reverses);
  end if;

  with missing as (
    insert into ledger_accounts (mode, account_id, kind, currency)
    select n.mode, n.owner, n.kind, n.currency
      from (select distinct * from unnest(modes, owners, kinds, currencies))
             as n (mode, owner, kind, currency)
     where (select a.id from ledger_accounts a
             where a.mode = n.mode and coalesce(a.account_id, '') = coalesce(n.owner, '')
               and a.kind = n.kind and a.currency = n.currency) is null
    on conflict do nothing
    returning id, account_id, kind, currency
  )
  insert into ledger_balances (ledger_account_id, account_id, kind, currency)
    select id, account_id, kind, currency from missing where account_id is not null;

  -- The time is taken when the balances are had, in the order of their ids as everywhere: so the
  -- postings of one balance follow each other as their times do, and whoever reads on from the
  -- last one misses none. Never before what stands there, should the clock be set back.
  balance_ids := array(
    select (select a.id from ledger_accounts a
             where a.mode = n.mode and coalesce(a.account_id, '') = n.owner
               and a.kind = n.kind and a.currency = n.currency)
      from (select distinct * from unnest(modes, owners, kinds, currencies))
             as n (mode, owner, kind, currency)
     where n.owner is not null);
  perform from ledger_balances where ledger_account_id = any (balance_ids)
    order by ledger_account_id for no key update;
  posted_at := greatest(clock_timestamp(), (
    select max(l.created_at)
      from unnest(balance_ids) as b (id) cross join lateral (
             select created_at from ledger_postings
              where ledger_account_id = b.id and entry_kind is not null
              order by created_at desc, id desc limit 1) l));

  entry_ids := array(
    select nextval(pg_get_serial_sequence('ledger_entries', 'id'))
      from generate_subscripts(entry_kinds, 1));
  insert into ledger_entries (id, payout_id, kind, action_id, reverses, created_at)
    overriding system value
    select *, posted_at
      from unnest(entry_ids, entry_payouts, entry_kinds, entry_actions, entry_reverses);
  with named as materialized (
    select n.*, (select a.id from ledger_accounts a
                  where a.mode = n.mode and coalesce(a.account_id, '') = coalesce(n.owner, '')
                    and a.kind = n.kind and a.currency = n.currency) as id
      from (select distinct * from unnest(modes, owners, kinds, currencies))
             as n (mode, owner, kind, currency)
  )
  insert into ledger_postings
    (entry_id, ledger_account_id, currency, amount_minor, entry_kind, created_at)
    select entry_ids[p.entry], n.id, p.currency, p.amount,
           case when p.owner is not null then entry_kinds[p.entry] end,
           case when p.owner is not null then posted_at end
      from unnest(posting_entries, modes, owners, kinds, currencies, amounts)
             with ordinality as p (entry, mode, owner, kind, currency, amount, position)
      join named n
        on n.mode = p.mode and coalesce(n.owner, '') = coalesce(p.owner, '')
       and n.kind = p.kind and n.currency = p.currency
     order by p.position;
end $$;

revoke execute on function
  post_entries(text[], text[], int[], text[], text[], text[], text[], bigint[], text[], bigint[])
  from public;
grant execute on function
  post_entries(text[], text[], int[], text[], text[], text[], text[], bigint[], text[], bigint[])
  to corridor_api, corridor_worker, corridor_operator;

-- Corrections move what the rail has paid or got back by their own postings. An entry that is
-- reversed did not happen: it leaves its own direction, where the bank shows nothing either.
create or replace view ledger_movements as
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

-- As before, but for what the ledger says of a key in all.
create or replace view statement_breaks as
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
  full join (select rail, payout_id, direction, currency, sum(amount_minor)::bigint as amount_minor,
                    min(booked_at) as booked_at
               from ledger_movements group by rail, payout_id, direction, currency
             having sum(amount_minor) <> 0) l
    on l.rail = s.rail and l.payout_id = s.rail_key and l.direction = s.direction
 where (s.rail_key is null and exists (select from statements c where c.rail = l.rail
          and c.statement_date > (l.booked_at at time zone 'UTC')::date))
    or (l.payout_id is null and exists (select from statements c where c.rail = s.rail
          and c.statement_date >= s.statement_date))
    or s.amount_minor <> l.amount_minor or s.currency <> l.currency;

-- Keys under which the bank has paid this amount since a day, and in all not what the ledger says.
-- That the key was paid is not enough: the bank may have booked another order's debit under it.
create function unmatched_debits(of_rail text, of_currency text, amount bigint, since date)
returns setof text language sql stable
set search_path = pg_catalog, public, pg_temp as $$
  select s.rail_key from statement_entries s
   where s.rail = of_rail and s.direction = 'debit' and s.currency = of_currency
     and s.rail_key in (select d.rail_key from statement_entries d
           where d.rail = of_rail and d.direction = 'debit' and d.currency = of_currency
             and d.amount_minor = amount and d.statement_date >= since)
   group by s.rail_key
  having sum(s.amount_minor) <> coalesce((
           select sum(m.amount_minor) from ledger_movements m
            where m.rail = of_rail and m.payout_id = s.rail_key and m.direction = 'debit'
              and m.currency = of_currency), 0)
$$;
