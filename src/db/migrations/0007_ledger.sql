-- Why: one double-entry ledger is the truth about money. The database itself keeps the three
-- promises nothing may break: a posting is never changed, every entry sums to zero in each of its
-- currencies, and no customer balance falls below zero. Entries are posted through post_entries
-- alone, which refuses what is not what a payout comes to.

create table ledger_accounts (
  id bigint generated always as identity primary key,
  mode text not null check (mode in ('test', 'live')),
  -- Null for the accounts of the service itself.
  account_id text,
  kind text not null check (kind in ('available', 'held', 'funding', 'fx_position',
    'rail_settlement', 'fee_revenue', 'spread_revenue', 'rounding', 'return_costs', 'suspense',
    'losses')),
  currency text not null check (currency ~ '^[A-Z]{3}$'),
  foreign key (account_id, mode) references accounts (id, mode),
  check ((account_id is not null) = (kind in ('available', 'held'))),
  unique (id, currency)
);
-- An expression that a join can look up: a comparison that treats nulls as equal could not use an
-- index, and would read every account for each posting.
create unique index ledger_accounts_owner on ledger_accounts
  (coalesce(account_id, ''), kind, currency, mode);

-- Only customers have a balance row: a row for the accounts of the service would be locked by every
-- payout there is.
create table ledger_balances (
  ledger_account_id bigint primary key references ledger_accounts,
  account_id text not null references accounts,
  kind text not null,
  currency text not null,
  amount_minor bigint not null default 0 check (amount_minor >= 0),
  -- The time of the last posting, which the next one is not before.
  moved_at timestamptz(3),
  unique (account_id, currency, kind)
);
-- At depth 0 a statement is a client's own; below that it is the one of apply_entries.
create trigger by_postings before update or delete on ledger_balances
  for each statement when (pg_trigger_depth() = 0)
  execute function refuse_edit('a balance is moved by postings alone');
create trigger by_postings_all before truncate on ledger_balances
  for each statement execute function refuse_edit('a balance is moved by postings alone');
create trigger begins_at_zero before insert on ledger_balances
  for each row when (new.amount_minor <> 0)
  execute function refuse_edit('a balance is moved by postings alone');

-- An entry and its transfers in one row: transfer i takes amounts_minor[i] from from_ids[i] to
-- to_ids[i], so an entry balances by construction. As rows of their own the five transfers of a payout
-- were a third of all that it wrote, and most of the indexes.
create table ledger_entries (
  id bigint generated always as identity primary key,
  -- No foreign key, which would look at each entry's payout again and lock it: post_entries refuses an
  -- entry whose payout does not exist, nobody else writes any, and no payout is deleted.
  payout_id text,
  kind text not null check (kind in ('fund', 'accept', 'settle', 'release', 'return',
    'late_payment', 'late_return', 'suspense_clear', 'correction')),
  -- The command that has posted a correction, and the entry that it reverses. No foreign keys, which
  -- every entry of every payout would pay for: post_entries looks, and neither table loses a row.
  action_id text,
  reverses bigint,
  -- Accounts of the ledger, each pair of one currency; the trigger below looks them up.
  from_ids bigint[] not null,
  to_ids bigint[] not null,
  amounts_minor bigint[] not null check (0 < all (amounts_minor)),
  -- Whose balances it moves and in which currency, which customers list them by; null if it moves none.
  account_id text,
  currency text,
  created_at timestamptz(3) not null default now(),
  check ((payout_id is null) = (kind = 'fund')),
  check ((action_id is not null) = (kind in ('late_return', 'suspense_clear', 'correction'))),
  check (reverses is null or kind = 'correction'),
  check ((account_id is null) = (currency is null)),
  -- A posting's id has room for 16 transfers, see ledger_postings; ours have at most five.
  check (cardinality(amounts_minor) between 1 and 16 and array_position(amounts_minor, null) is null
    and cardinality(from_ids) = cardinality(amounts_minor)
    and cardinality(to_ids) = cardinality(amounts_minor))
);
-- A step of a payout is posted once, however often it is run, and so is each correction.
create unique index ledger_entries_once on ledger_entries (payout_id, kind, coalesce(action_id, ''));
create unique index ledger_entries_reversed_once on ledger_entries (reverses)
  where reverses is not null;
-- What two people have agreed to is one entry, of whatever kind it claims to be.
create unique index ledger_entries_agreed_once on ledger_entries (action_id)
  where action_id is not null;
-- A list of all kinds is merged from the nine.
create index ledger_entries_list on ledger_entries (account_id, currency, kind, created_at, id)
  where account_id is not null;

-- The two sides of each transfer: positive arrives on the account, negative leaves it.
create view ledger_postings as
select 32 * e.id + 2 * t.position - 2 + s.side as id, e.id as entry_id, a.id as ledger_account_id,
       a.currency, s.amount_minor, e.created_at
  from ledger_entries e
 cross join lateral unnest(e.from_ids, e.to_ids, e.amounts_minor)
         with ordinality as t (from_id, to_id, amount_minor, position)
 cross join lateral (values (0, t.from_id, -t.amount_minor), (1, t.to_id, t.amount_minor))
         as s (side, account_id, amount_minor)
  join ledger_accounts a on a.id = s.account_id;

create trigger append_only before update or delete on ledger_accounts
  for each row execute function refuse_change();
create trigger append_only_all before truncate on ledger_accounts
  for each statement execute function refuse_change();
create trigger append_only before update or delete on ledger_entries
  for each row execute function refuse_change();
create trigger append_only_all before truncate on ledger_entries
  for each statement execute function refuse_change();

-- A statement trigger sees all entries of a statement at once: it costs a few per cent where the
-- usual deferred row trigger costs nearly half of the throughput. The accounts of a transfer exist and
-- have one currency; an entry has one mode and one customer at most, whose accounts have balances.
create function apply_entries() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp
-- Whatever the first statement posts, its plans stay: accounts and balances are found by their ids.
set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  fault text;
begin
  -- Entries of one kind and corridor name the same accounts, so few combinations are looked at.
  with combinations as materialized (
    select distinct account_id, currency, from_ids, to_ids from added
  ), checked as (
    select bool_and(coalesce(f.currency = t.currency and f.id <> t.id, false)) as are_known,
           min(least(f.mode, t.mode)) = max(greatest(f.mode, t.mode)) as is_of_one_mode,
           coalesce((c.account_id is not null) = bool_or(coalesce(f.account_id, t.account_id) is not null)
             and bool_and((f.account_id is null or (f.account_id, f.currency) = (c.account_id, c.currency))
               and (t.account_id is null or (t.account_id, t.currency) = (c.account_id, c.currency))), false)
             as is_of_its_customer,
           bool_and((f.account_id is null or f.has_balance) and (t.account_id is null or t.has_balance))
             as have_balances
      from combinations c cross join lateral unnest(c.from_ids, c.to_ids) as s (from_id, to_id)
      -- With a limit they cannot become joins, which would be planned for the table as a whole.
      left join lateral (select a.*, exists (select from ledger_balances
            where ledger_account_id = a.id) as has_balance
          from ledger_accounts a where a.id = s.from_id limit 1) f on true
      left join lateral (select a.*, exists (select from ledger_balances
            where ledger_account_id = a.id) as has_balance
          from ledger_accounts a where a.id = s.to_id limit 1) t on true
     group by c.account_id, c.currency, c.from_ids, c.to_ids
  )
  select case when not are_known then 'a transfer names no account of its currency'
              when not is_of_one_mode then 'an entry mixes test and live accounts'
              when not is_of_its_customer then 'an entry names another customer or currency'
              when not have_balances then 'the account of a customer has no balance' end into fault
    from checked
   where not (are_known and is_of_one_mode and is_of_its_customer and have_balances)
   limit 1;
  if found then
    raise foreign_key_violation using message = fault;
  end if;

  -- Balances are locked in the order of their ids, so that two statements cannot wait for each other.
  perform 1 from ledger_balances
    where ledger_account_id in (select unnest(from_ids || to_ids) from added)
    order by ledger_account_id for no key update;
  update ledger_balances b set amount_minor = b.amount_minor + a.amount_minor, moved_at = a.moved_at
    from (select s.id, sum(s.amount_minor)::bigint as amount_minor, max(e.created_at) as moved_at
            from added e
           cross join lateral unnest(e.from_ids, e.to_ids, e.amounts_minor) as t (from_id, to_id, amount_minor)
           cross join lateral (values (t.from_id, -t.amount_minor), (t.to_id, t.amount_minor)) s (id, amount_minor)
           group by s.id) a
    where b.ledger_account_id = a.id;
  return null;
end $$;
create trigger applied after insert on ledger_entries
  referencing new table as added for each statement execute function apply_entries();

-- A list is counted from 1: otherwise a subscript finds another element than unnest, and what is
-- checked is not what is posted.
create function is_list(list anyarray, length int) returns boolean language sql immutable
set search_path = pg_catalog, public, pg_temp as $$
  select cardinality(list) = length
     and (length = 0 or (array_ndims(list) = 1 and array_lower(list, 1) = 1))
$$;

-- Refuses lists that are not as long as each other, and a transfer of no entry. A null compares to
-- nothing that is true, so it is refused as well.
create function check_lists(
  entry_payouts text[], entry_kinds text[], entry_modes text[], entry_owners text[],
  transfer_entries int[], sources text[], targets text[], currencies text[], amounts bigint[],
  entry_actions text[], entry_reverses bigint[]
) returns void language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
declare
  entries int := cardinality(entry_kinds);
  transfers int := cardinality(transfer_entries);
begin
  if not coalesce(
       is_list(entry_kinds, entries) and is_list(entry_payouts, entries)
       and is_list(entry_modes, entries) and is_list(entry_owners, entries)
       and is_list(transfer_entries, transfers) and is_list(sources, transfers)
       and is_list(targets, transfers) and is_list(currencies, transfers)
       and is_list(amounts, transfers)
       -- Only corrections have the last two.
       and ((entry_actions is null and entry_reverses is null)
         or (is_list(entry_actions, entries) and is_list(entry_reverses, entries)))
       and '' <> all (entry_kinds)
       and 1 <= all (transfer_entries) and entries >= all (transfer_entries), false) then
    raise invalid_parameter_value using message =
      'the lists of entries and transfers have to be as long as each other and counted from 1';
  end if;
end $$;

-- Refuses entries that are none of ours. A process with the worker's role may call post_entries, so
-- what an entry does to its customer and to the rail has to be what its payout's status and frozen
-- amounts imply, and no entry touches another customer. The API and the command line put money on
-- test accounts and post nothing else; on a live account only the owner does. A step follows its own:
-- without a hold of the payout, another payout's would pay; and what was not settled, or is settled
-- no more, does not come back. Corrections are checked for what they do to the customer and to the
-- rail; two people have agreed to the rest.
-- A migration that adds a kind of entry replaces this function with one that knows the kind.
create function check_entries(
  entry_payouts text[], entry_kinds text[], entry_modes text[], entry_owners text[],
  transfer_entries int[], sources text[], targets text[], currencies text[], amounts bigint[]
) returns void language plpgsql
set search_path = pg_catalog, public, pg_temp
-- Payouts are found by their ids and lists are hashed, however long: one plan is right for ever.
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_nestloop = off as $$
declare
  is_owner boolean := session_user = current_user;
  wrong text;
begin
  if 'fund' = any (entry_kinds) and exists (
    select from unnest(transfer_entries, sources, targets) as t (entry, source, target)
      join unnest(entry_kinds, entry_modes) with ordinality as e (kind, mode, number)
        on e.number = t.entry
     where e.kind = 'fund' and not coalesce((e.mode = 'test' or is_owner)
       and t.source = 'funding' and t.target = 'available', false)) then
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
  -- Sums alone would let pass what goes out and comes back: lines of a customer or of a rail that nothing
  -- has moved.
  if exists (
    select from unnest(transfer_entries, sources, currencies) as s (entry, account, currency)
      join unnest(transfer_entries, targets, currencies) as t (entry, account, currency)
        on (t.entry, t.account, t.currency) = (s.entry, s.account, s.currency)
     where s.account in ('available', 'held', 'rail_settlement')) then
    raise exception 'an entry moves an account in both directions';
  end if;
  with entries as materialized (
    select e.number, e.kind, e.payout, p.status, p.status_reason, p.source_currency,
           p.destination_currency, p.source_minor, p.net_minor, p.receive_minor, p.returned_minor,
           (e.mode, e.owner) = (p.mode, p.account_id) as is_owned,
           case e.kind when 'settle' then 'accept' when 'release' then 'accept'
                       when 'return' then 'settle' end as follows
      from unnest(entry_payouts, entry_kinds, entry_modes, entry_owners)
             with ordinality as e (payout, kind, mode, owner, number)
      left join lateral (select * from payouts where id = e.payout limit 1) p on true
     where e.kind <> 'fund'
  ), sides as (
    select t.number, s.account, t.currency, t.amount * s.sign as amount
      from unnest(transfer_entries, sources, targets, currencies, amounts)
             as t (number, source, target, currency, amount)
     cross join lateral (values (t.source, -1), (t.target, 1)) s (account, sign)
     where s.account in ('available', 'held', 'rail_settlement')
  ), posted as (
    -- The other accounts are the service's own: the rest of the entry balances by them.
    select s.number,
           bool_and(coalesce(s.currency = case s.account when 'rail_settlement'
             then e.destination_currency else e.source_currency end, false)) as fits,
           coalesce(sum(s.amount) filter (where s.account = 'available'), 0)::bigint as available,
           coalesce(sum(s.amount) filter (where s.account = 'held'), 0)::bigint as held,
           coalesce(sum(s.amount) filter (where s.account = 'rail_settlement'), 0)::bigint as rail
      from sides s join entries e on e.number = s.number
     group by s.number
  )
  select format('%s of %s', e.kind, e.payout) into wrong
    from entries e left join posted p on p.number = e.number
    left join entries b on b.payout = e.payout and b.kind = e.follows and b.number < e.number
   where not coalesce(e.is_owned and coalesce(p.fits, true)
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

-- The postings that two people have agreed to. Of a charge to the customer, what is taken and what it
-- is taken for: the fee and the margin in between are the service's own.
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

-- A correction is posted alone, and is what a second person has approved: not only of this payout,
-- but this kind of entry with these postings, in the payout's own mode.
create function check_correction(
  entry_payouts text[], entry_kinds text[], entry_modes text[],
  sources text[], targets text[], currencies text[], amounts bigint[],
  entry_actions text[], entry_reverses bigint[]
) returns void language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
declare
  agreed jsonb := (
    select proposal.command -> 'correction'
      from operator_actions a join operator_actions proposal on proposal.id = a.approves
     where a.id = entry_actions[1] and a.subject_id = entry_payouts[1] and a.outcome = 'done'
       and proposal.command ->> 'kind' = 'correct');
  expected text[] := array(
    select format('%s %s %s', account, currency, sum(amount))
      from agreed_postings(entry_payouts[1], agreed)
     group by account, currency, amount > 0 order by 1);
  posted text[] := array(
    select format('%s %s %s', s.account, t.currency, sum(t.amount * s.sign))
      from unnest(sources, targets, currencies, amounts) as t (source, target, currency, amount)
     cross join lateral (values (t.source, -1), (t.target, 1)) s (account, sign)
     where agreed ->> 'charge' is distinct from 'customer' or s.account in ('available', 'suspense')
     group by s.account, t.currency, s.sign order by 1);
begin
  if not coalesce(
       cardinality(entry_kinds) = 1
       and entry_kinds[1] = case agreed ->> 'kind'
             when 'lateReturn' then 'late_return' when 'clearSuspense' then 'suspense_clear'
             else 'correction' end
       and entry_reverses[1]::text is not distinct from
             case agreed ->> 'kind' when 'reverse' then agreed ->> 'entry' end
       and posted <> '{}' and posted = expected
       and (select mode from payouts where id = entry_payouts[1]) = entry_modes[1], false) then
    raise check_violation using
      message = 'a correction is what a second person has approved, and is posted alone';
  end if;
end $$;

-- The ledger accounts that transfers name, each once; its id is null if it does not exist yet. Lists
-- are subscripted, not joined: the planner does not know how long they are.
create function named_accounts(
  entry_modes text[], entry_owners text[],
  transfer_entries int[], sources text[], targets text[], currencies text[]
) returns ledger_accounts[] language plpgsql stable
set search_path = pg_catalog, public, pg_temp as $$
begin
  return array(
    with pairs as (
      select distinct entry_modes[t.entry] as mode, entry_owners[t.entry] as owner,
             t.source, t.target, t.currency
        from unnest(transfer_entries, sources, targets, currencies)
               as t (entry, source, target, currency)
    ), named as (
      select distinct p.mode, case when s.kind in ('available', 'held') then p.owner end as owner,
             s.kind, p.currency
        from pairs p cross join lateral (values (p.source), (p.target)) s (kind)
    )
    -- A subquery and not a join, which would be planned for the table as a whole.
    select row((select a.id from ledger_accounts a
                 where a.mode = n.mode and coalesce(a.account_id, '') = coalesce(n.owner, '')
                   and a.kind = n.kind and a.currency = n.currency),
               n.mode, n.owner, n.kind, n.currency)::ledger_accounts
      from named n);
end $$;

-- Transfers with the ids of their accounts. Hashed however long the lists are, and in a function of its
-- own, as the setting must not reach the triggers of what is inserted.
create function between_accounts(
  accounts ledger_accounts[], entry_modes text[], entry_owners text[],
  transfer_entries int[], sources text[], targets text[], currencies text[], amounts bigint[]
) returns table (
  entry int, number bigint, currency text, amount bigint, from_id bigint, to_id bigint, is_customer boolean
) language plpgsql stable
set search_path = pg_catalog, public, pg_temp set enable_nestloop = off as $$
#variable_conflict use_column
begin
  return query
    with named as materialized (
      select id, mode, coalesce(account_id, '') as owner, kind, currency,
             account_id is not null as is_customer
        from unnest(accounts)
    ), transfers as materialized (
      select t.*, entry_modes[t.entry] as mode, entry_owners[t.entry] as owner
        from unnest(transfer_entries, sources, targets, currencies, amounts)
               with ordinality as t (entry, source, target, currency, amount, position)
    -- One side after the other: else the accounts could be joined with each other first.
    ), leaving as materialized (
      select t.*, f.id as from_id, f.is_customer as is_from_customer
        from transfers t
        join named f on f.mode = t.mode and f.kind = t.source and f.currency = t.currency
         and f.owner = case when t.source in ('available', 'held') then t.owner else '' end
    )
    select t.entry, t.position, t.currency, t.amount, t.from_id, g.id,
           t.is_from_customer or g.is_customer
      from leaving t
      join named g on g.mode = t.mode and g.kind = t.target and g.currency = t.currency
       and g.owner = case when t.target in ('available', 'held') then t.owner else '' end;
end $$;

-- Writes a list of entries, each of one customer's account, with their transfers, and creates the
-- ledger accounts they name. Transfer i belongs to the entry number transfer_entries[i] (from 1). A
-- correction names the action of the person who approved it. Its plans are made once, as planning took
-- longer than posting a single entry; no table is read as a whole, however small it was then.
create function post_entries(
  entry_payouts text[], entry_kinds text[], entry_modes text[], entry_owners text[],
  transfer_entries int[], sources text[], targets text[], currencies text[], amounts bigint[],
  entry_actions text[] default null, entry_reverses bigint[] default null
) returns void language plpgsql
security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
  accounts ledger_accounts[];
  posted_at timestamptz(3);
  entries bigint;
  transfers bigint;
begin
  perform check_lists(entry_payouts, entry_kinds, entry_modes, entry_owners,
    transfer_entries, sources, targets, currencies, amounts, entry_actions, entry_reverses);
  perform check_entries(entry_payouts, entry_kinds, entry_modes, entry_owners,
    transfer_entries, sources, targets, currencies, amounts);
  if entry_actions is not null then
    perform check_correction(entry_payouts, entry_kinds, entry_modes,
      sources, targets, currencies, amounts, entry_actions, entry_reverses);
  end if;

  accounts := named_accounts(
    entry_modes, entry_owners, transfer_entries, sources, targets, currencies);
  if exists (select from unnest(accounts) a where a.id is null) then
    with missing as (
      insert into ledger_accounts (mode, account_id, kind, currency)
      select mode, account_id, kind, currency from unnest(accounts) a where a.id is null
       -- In one order everywhere, so that two statements cannot wait for each other.
       order by account_id, kind, currency, mode
      on conflict do nothing
      returning id, account_id, kind, currency
    )
    insert into ledger_balances (ledger_account_id, account_id, kind, currency)
      select id, account_id, kind, currency from missing where account_id is not null;
    accounts := named_accounts(
      entry_modes, entry_owners, transfer_entries, sources, targets, currencies);
  end if;

  -- The time is taken once the balances are locked, in the order of their ids as everywhere: so the
  -- postings of one balance follow each other as their times do, and a reader that goes on from the
  -- last one misses none. Never before the last one, should the clock be set back.
  select max(moved_at) into posted_at
    from (select moved_at from ledger_balances
           where ledger_account_id in (select a.id from unnest(accounts) a
                                        where a.account_id is not null)
           order by ledger_account_id for no key update) b;
  posted_at := greatest(clock_timestamp(), posted_at);

  with written as (
    insert into ledger_entries (payout_id, kind, action_id, reverses, account_id, currency,
                                from_ids, to_ids, amounts_minor, created_at)
    select entry_payouts[t.entry], entry_kinds[t.entry], entry_actions[t.entry],
           entry_reverses[t.entry], case when bool_or(t.is_customer) then entry_owners[t.entry] end,
           max(t.currency) filter (where t.is_customer), array_agg(t.from_id order by t.number),
           array_agg(t.to_id order by t.number), array_agg(t.amount order by t.number), posted_at
      from between_accounts(
        accounts, entry_modes, entry_owners, transfer_entries, sources, targets, currencies, amounts) t
     group by t.entry order by t.entry
    returning cardinality(amounts_minor) as transfers
  )
  select count(*), coalesce(sum(w.transfers), 0) into entries, transfers from written w;
  -- What was checked is what is posted: no transfer is left out because its accounts were not found.
  if transfers <> cardinality(transfer_entries) then
    raise foreign_key_violation using message = 'a transfer names no account of its currency';
  end if;
  if entries <> cardinality(entry_kinds) then
    raise invalid_parameter_value using message = 'an entry has no transfers';
  end if;
end $$;

revoke execute on function
  check_entries(text[], text[], text[], text[], int[], text[], text[], text[], bigint[]),
  post_entries(text[], text[], text[], text[], int[], text[], text[], text[], bigint[], text[], bigint[])
  from public;
grant execute on function
  post_entries(text[], text[], text[], text[], int[], text[], text[], text[], bigint[], text[], bigint[])
  to corridor_api, corridor_worker, corridor_operator;

-- A row is locked only by a role that may update it, and only the owner may update a balance.
create function lock_balances(payout_ids text[]) returns setof ledger_balances language plpgsql
security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
begin
  return query
    select b.* from ledger_balances b
     where (b.account_id, b.currency) in (
       select p.account_id, coalesce(q.source_currency, p.source_currency)
         from payouts p left join quotes q on q.id = p.quote_id and q.account_id = p.account_id
        where p.id = any (payout_ids))
     order by b.ledger_account_id for no key update;
end $$;
revoke execute on function lock_balances(text[]) from public;
grant execute on function lock_balances(text[]) to corridor_worker;

-- Balances that are not the sum of their postings. One statement sees balances and postings of one
-- moment, since they change in the same transaction, and it locks nothing.
create view balance_breaks as
select a.account_id, a.kind, a.currency, b.amount_minor as balance_minor,
       coalesce(p.amount_minor, 0) as postings_minor
  from ledger_accounts a
  left join ledger_balances b on b.ledger_account_id = a.id
  left join (select ledger_account_id, sum(amount_minor)::bigint as amount_minor
               from ledger_postings group by ledger_account_id) p on p.ledger_account_id = a.id
 where a.account_id is not null and b.amount_minor is distinct from coalesce(p.amount_minor, 0);
