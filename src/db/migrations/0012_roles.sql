-- Why: one role owned the tables and every process connected as it, so whoever had the connection
-- of the API or of a worker could edit a balance or switch off the trigger that keeps a promise.
-- From here on the owner runs migrations and nothing else. The processes connect as
--
--   corridor_api        records what is asked
--   corridor_worker     carries it out
--   corridor_operator   the command line: reads everything, opens accounts, makes keys, pauses
--                       batches. Not the worker's role: with that one person could post what two
--                       have to agree to, and a worker could make itself a key to any account
--
-- or as logins that are members of these. None owns a table, so none can alter one or disable a
-- trigger; none may update or delete the ledger, its balances, the moves, the audit or a history.
-- Entries are posted through post_entries alone, which checks what it is given.
--
-- A later migration grants what its own tables and columns need; all three may read its tables
-- without that, by the default privileges below. Columns that it adds to accounts, batches,
-- beneficiaries, payouts, quotes or rail_inbox are updated by nobody until it grants them:
--
--   grant insert, update on new_table to corridor_worker;
--   grant update (new_column) on payouts to corridor_worker;
--
-- A function that it creates or replaces says `set search_path = pg_catalog, public, pg_temp`:
-- else a temporary table of the caller's stands in front of ours. And one that is SECURITY DEFINER
-- is revoked from public and granted to whom it is for. test/integration/roles.test.ts holds this.

----------------------------------------------------------------------------------------------
-- What the triggers let pass until now

create function refuse_edit() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  raise exception '%', tg_argv[0];
end $$;

-- At depth 0 a statement is somebody's own; below that it is the one of apply_postings.
create trigger by_postings before update or delete on ledger_balances
  for each statement when (pg_trigger_depth() = 0)
  execute function refuse_edit('a balance is moved by postings alone');
create trigger by_postings_all before truncate on ledger_balances
  for each statement execute function refuse_edit('a balance is moved by postings alone');
create trigger begins_at_zero before insert on ledger_balances
  for each row when (new.amount_minor <> 0)
  execute function refuse_edit('a balance is moved by postings alone');

-- As before, and: an entry has one mode, and each customer's account has its balance.
create or replace function apply_postings() returns trigger language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
declare
  strangers bigint;
  customers bigint;
  modes bigint;
  moved bigint;
  unbalanced record;
begin
  -- Subqueries that cannot become joins: a join would be planned for the tables as wholes.
  if exists (select from (select distinct entry_id from added) a
              where (select e.id from ledger_entries e where e.id = a.entry_id) is null) then
    raise foreign_key_violation using message = 'a posting names no entry';
  end if;
  select count(*) filter (where l.id is null), count(l.account_id), count(distinct l.mode)
    into strangers, customers, modes
    from (select distinct ledger_account_id, currency from added) a
    left join lateral (select * from ledger_accounts
            where id = a.ledger_account_id and currency = a.currency limit 1) l on true;
  if strangers > 0 then
    raise foreign_key_violation using message = 'a posting names no account of its currency';
  end if;
  -- Hardly any statement posts in both modes: only then each entry is looked at. In a condition
  -- of its own, for one that has a variable in it is planned anew each time.
  if modes > 1 then
    if exists (select from added a join ledger_accounts l on l.id = a.ledger_account_id
                group by a.entry_id having min(l.mode) <> max(l.mode)) then
      raise exception 'an entry mixes test and live accounts';
    end if;
  end if;
  select entry_id, currency, sum(amount_minor) as difference into unbalanced
    from added group by entry_id, currency having sum(amount_minor) <> 0 limit 1;
  if found then
    raise exception 'entry % does not balance: % is off by %',
      unbalanced.entry_id, unbalanced.currency, unbalanced.difference;
  end if;

  -- Balances are locked in the order of their ids, so that two postings cannot wait
  -- for each other.
  perform 1 from ledger_balances
    where ledger_account_id in (select ledger_account_id from added)
    order by ledger_account_id for no key update;
  update ledger_balances b set amount_minor = b.amount_minor + a.amount_minor
    from (select ledger_account_id, sum(amount_minor)::bigint as amount_minor
            from added group by ledger_account_id) a
    where b.ledger_account_id = a.ledger_account_id;
  get diagnostics moved = row_count;
  if moved <> customers then
    raise foreign_key_violation using message = 'the account of a customer has no balance';
  end if;
  return null;
end $$;

-- Triggers on columns that no statement of ours names: they cost nothing until one does.
create trigger priced before update of id, account_id, source_currency, destination_currency,
    fixed_side, amount, source_minor, fee_minor, net_minor, receive_minor, mid_value_minor, rate,
    mid, rate_provider, rate_as_of, source_rate_id, destination_rate_id on quotes
  for each statement execute function refuse_edit('a quote keeps what it was priced with');
create trigger used_once before update of used_by on quotes
  for each row when (old.used_by is not null and old.used_by is distinct from new.used_by)
  execute function refuse_edit('a quote is used once');

create trigger asked before update of id, account_id, mode, quote_id, beneficiary_id, reference,
    metadata, batch_id, batch_index on payouts
  for each statement execute function refuse_edit('what was asked of a payout is frozen');
-- The decision fills in what a quote implies, and changes nothing that was said.
create trigger asked_amount before update of amount, fixed_side on payouts
  for each row when ((old.amount is not null and old.amount is distinct from new.amount)
    or (old.fixed_side is not null and old.fixed_side is distinct from new.fixed_side))
  execute function refuse_edit('what was asked of a payout is frozen');
create trigger history before update of status_history on payouts
  for each statement execute function refuse_edit('the history of a payout is written by its moves');

create trigger said before update of id, rail, rail_event_id, rail_key, payout_id, fact or delete
    on rail_inbox
  for each statement execute function refuse_edit('what a rail has said is never changed');

----------------------------------------------------------------------------------------------
-- Statements of banks

-- A line is what the bank has put there, so its place names it: two debits with one reference are
-- two. While a day is open its lines are replaced whenever it is read; once it is closed they stay.
alter table statement_entries add line int check (line > 0);
update statement_entries e set line = n.line
  from (select rail, bank_reference, direction, row_number() over (
               partition by rail, statement_date
               order by booked_at, bank_reference, direction desc) as line
          from statement_entries) n
 where (e.rail, e.bank_reference, e.direction) = (n.rail, n.bank_reference, n.direction);
alter table statement_entries
  drop constraint statement_entries_pkey,
  add primary key (rail, statement_date, line);

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
create trigger append_only before update or delete on statements
  for each row execute function refuse_change();

-- The days of a rail without a closed statement, from the one before its first payout, for clocks
-- differ. At most a month of them, so that one run ends; and half of them from each end, so that
-- days that a bank never closes keep nobody from what is new, nor what is new from them.
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

-- Balances that are not the sum of their postings. One statement sees balances and postings of
-- one moment, since they change in the same transaction, and it locks nothing.
create view balance_breaks as
select a.account_id, a.kind, a.currency, b.amount_minor as balance_minor,
       coalesce(p.amount_minor, 0) as postings_minor
  from ledger_accounts a
  left join ledger_balances b on b.ledger_account_id = a.id
  left join (select ledger_account_id, sum(amount_minor)::bigint as amount_minor
               from ledger_postings group by ledger_account_id) p on p.ledger_account_id = a.id
 where a.account_id is not null and b.amount_minor is distinct from coalesce(p.amount_minor, 0);

----------------------------------------------------------------------------------------------
-- Functions that may do what their callers may not

-- A list is counted from 1: else a subscript finds another element than unnest, and what is checked
-- is not what is posted.
create function is_list(list anyarray, length int) returns boolean language sql immutable
set search_path = pg_catalog, public, pg_temp as $$
  select cardinality(list) = length
     and (length = 0 or (array_ndims(list) = 1 and array_lower(list, 1) = 1))
$$;

-- Refuses lists that are not as long as each other, and a posting of no entry. A null compares to
-- nothing that is true, so it is refused as well.
create function check_lists(
  entry_payouts text[], entry_kinds text[],
  posting_entries int[], modes text[], owners text[], kinds text[],
  currencies text[], amounts bigint[]
) returns void language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
declare
  entries int := cardinality(entry_kinds);
  postings int := cardinality(posting_entries);
begin
  if not coalesce(
       is_list(entry_kinds, entries) and is_list(entry_payouts, entries)
       and is_list(posting_entries, postings) and is_list(modes, postings)
       and is_list(owners, postings) and is_list(kinds, postings)
       and is_list(currencies, postings) and is_list(amounts, postings)
       and '' <> all (entry_kinds)
       and 1 <= all (posting_entries) and entries >= all (posting_entries), false) then
    raise invalid_parameter_value using message =
      'the lists of entries and postings have to be as long as each other and counted from 1';
  end if;
end $$;

-- Refuses entries that are none of ours. Whoever has the worker's role may call post_entries, so
-- what an entry does to its customer and to the rail has to be what its payout's status and frozen
-- amounts say, and no entry touches another customer. The API and the command line put money on
-- test accounts and post nothing else; on a live account only the owner does.
-- A migration that adds a kind of entry replaces this function with one that knows the kind.
create function check_entries(
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
    select e.number, e.kind, e.payout, p.mode, p.account_id, p.status, p.source_currency,
           p.destination_currency, p.source_minor, p.net_minor, p.receive_minor, p.returned_minor
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
   where not coalesce(e.status is not null and coalesce(p.fits, true) and case e.kind
     when 'accept' then e.status = 'processing'
       and (available, held, rail) = (-e.source_minor, e.source_minor, 0)
     when 'release' then e.status in ('failed', 'canceled')
       and (available, held, rail) = (e.source_minor, -e.source_minor, 0)
     when 'settle' then e.status in ('settled', 'returned')
       and (available, held, rail) = (0, -e.source_minor, e.receive_minor)
     when 'return' then e.status = 'returned'
       and (available, held, rail) = (e.net_minor, 0, -e.returned_minor)
     when 'late_payment' then e.status in ('failed', 'canceled')
       and (available, held, rail) = (0, 0, e.receive_minor)
     else true end, false)
   limit 1;
  if found then
    raise exception 'an entry is not what its payout comes to: %', wrong;
  end if;
end $$;

-- As before, but for the check.
create or replace function post_entries(
  entry_payouts text[], entry_kinds text[],
  posting_entries int[], modes text[], owners text[], kinds text[],
  currencies text[], amounts bigint[]
) returns void language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
declare
  entry_ids bigint[];
begin
  perform check_lists(
    entry_payouts, entry_kinds, posting_entries, modes, owners, kinds, currencies, amounts);
  perform check_entries(
    entry_payouts, entry_kinds, posting_entries, modes, owners, kinds, currencies, amounts);
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

  entry_ids := array(
    select nextval(pg_get_serial_sequence('ledger_entries', 'id'))
      from generate_subscripts(entry_kinds, 1));
  insert into ledger_entries (id, payout_id, kind) overriding system value
    select * from unnest(entry_ids, entry_payouts, entry_kinds);
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
           case when p.owner is not null then now() end
      from unnest(posting_entries, modes, owners, kinds, currencies, amounts)
             with ordinality as p (entry, mode, owner, kind, currency, amount, position)
      join named n
        on n.mode = p.mode and coalesce(n.owner, '') = coalesce(p.owner, '')
       and n.kind = p.kind and n.currency = p.currency
     order by p.position;
end $$;

-- A row is locked only by whoever may update it, and nobody but the owner may update a balance.
create function lock_balances(payout_ids text[]) returns setof ledger_balances language plpgsql
security definer set search_path = pg_catalog, public, pg_temp as $$
begin
  return query
    select b.* from ledger_balances b
     where (b.account_id, b.currency) in (
       select p.account_id, coalesce(q.source_currency, p.source_currency)
         from payouts p left join quotes q on q.id = p.quote_id and q.account_id = p.account_id
        where p.id = any (payout_ids))
     order by b.ledger_account_id for no key update;
end $$;

alter function refuse_change() set search_path = pg_catalog, public, pg_temp;
alter function refuse_thaw() set search_path = pg_catalog, public, pg_temp;
alter function record_status() set search_path = pg_catalog, public, pg_temp;
alter function put_terms() set search_path = pg_catalog, public, pg_temp;
alter function put_currencies() set search_path = pg_catalog, public, pg_temp;
alter function judge_rate() set search_path = pg_catalog, public, pg_temp;
alter function refuse_test_rates() set search_path = pg_catalog, public, pg_temp;
alter function refuse_live_account() set search_path = pg_catalog, public, pg_temp;

----------------------------------------------------------------------------------------------
-- Roles

-- Roles belong to the whole server: another database's migration may be making them now, and on
-- a managed server an administrator has made them before. They have no password and no login here.
do $$
declare
  wanted text;
begin
  foreach wanted in array '{corridor_api,corridor_worker,corridor_operator}'::text[] loop
    continue when exists (select from pg_roles where rolname = wanted);
    begin
      execute format('create role %I', wanted);
    exception
      when duplicate_object or unique_violation then null;
      when insufficient_privilege then
        raise insufficient_privilege using
          message = format('The role %s is not there, and %s may not make it.', wanted, current_user),
          hint = format('Have an administrator run: create role %s', wanted);
    end;
  end loop;
end $$;

-- Makes a login for processes of a kind, or gives the one that is there this password. For the
-- owner, where it may make roles; elsewhere an administrator does the same by hand.
create function allow_login(kind text, login text, secret text) returns void language plpgsql
set search_path = pg_catalog, public, pg_temp as $$
begin
  if not exists (select from pg_roles where rolname = login) then
    execute format('create role %I', login);
  end if;
  execute format('alter role %I login password %L', login, secret);
  if login <> kind then
    execute format('grant %I to %I', kind, login);
  end if;
  execute format('grant connect on database %I to %I', current_database(), login);
end $$;

revoke execute on function
  post_entries(text[], text[], int[], text[], text[], text[], text[], bigint[]),
  check_entries(text[], text[], int[], text[], text[], text[], text[], bigint[]),
  lock_balances(text[]), allow_login(text, text, text) from public;
grant execute on function
  post_entries(text[], text[], int[], text[], text[], text[], text[], bigint[])
  to corridor_api, corridor_worker, corridor_operator;
grant execute on function lock_balances(text[]) to corridor_worker;

grant usage on schema public to corridor_api, corridor_worker, corridor_operator;
grant select on all tables in schema public to corridor_api, corridor_worker, corridor_operator;
alter default privileges in schema public
  grant select on tables to corridor_api, corridor_worker, corridor_operator;

-- Every column that there is by now, but for those that stay as they were written.
create function pg_temp.grant_all_but(privilege text, relation regclass, role text, kept text[])
returns void language plpgsql as $$
begin
  execute (select format('grant %s (%s) on %s to %I', privilege,
                         string_agg(quote_ident(attname), ', '), relation, role)
             from pg_attribute
            where attrelid = relation and attnum > 0 and not attisdropped
              and attname <> all (kept));
end $$;

-- What is asked. A payout comes without what only its decision and its moves write.
grant insert on quotes, beneficiaries, batches, batch_chunks, batch_references, rail_inbox,
  idempotency_keys, payout_terms, webhook_endpoints to corridor_api;
grant insert (id, account_id, mode, driver, wake_at, quote_id, beneficiary_id, source_currency,
  destination_currency, fixed_side, amount, reference, metadata, batch_id, batch_index, refusal)
  on payouts to corridor_api;
grant update (driver, wake_at) on payouts to corridor_api, corridor_operator;
grant update (canceled_at) on batches to corridor_api;
grant update (deleted_at) on beneficiaries to corridor_api;
grant update (api_version) on accounts to corridor_api;
grant update (last_used_at) on api_keys to corridor_api;
grant update on batch_chunks, idempotency_keys, webhook_endpoints, deliveries to corridor_api;
grant delete on idempotency_keys to corridor_api;

-- What is done about it.
grant insert on events, deliveries, operator_actions, payout_terms, rates, rate_provider,
  statements, statement_entries to corridor_worker;
select pg_temp.grant_all_but('update', 'payouts', 'corridor_worker',
  '{id,account_id,mode,status_history,quote_id,beneficiary_id,reference,metadata,requested_at,batch_id,batch_index}');
select pg_temp.grant_all_but('update', 'batches', 'corridor_worker',
  '{id,account_id,total,rates,mode,created_at}');
grant update (used_by) on quotes to corridor_worker;
grant update (applied_at, outcome) on rail_inbox to corridor_worker;
grant update (event_sequence) on accounts to corridor_worker;
-- Only to hold a beneficiary against its deletion: who may update no column may not lock a row.
grant update (deleted_at) on beneficiaries to corridor_worker;
grant update on batch_chunks, deliveries, webhook_endpoints to corridor_worker;
grant delete on idempotency_keys, statement_entries to corridor_worker;

-- What people do at the command line; the rest they ask of the workflows.
grant insert on accounts, api_keys, operator_actions to corridor_operator;
grant update (name) on accounts to corridor_operator;
grant update (expires_at, revoked_at) on api_keys to corridor_operator;
grant update (paused_at) on batches to corridor_operator;
-- Which rates are used is a person's decision; what prices are made of is copied from that.
grant insert on rate_decisions, rate_provider to corridor_operator;
grant update on rate_provider to corridor_operator;
grant execute on function take_accepted_rates(text[]) to corridor_worker, corridor_operator;
