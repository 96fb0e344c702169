-- Why: five references have no foreign key, as the statement that writes them reads what they name, and
-- the check of each row would cost again. What the database does not enforce is looked for every hour:
-- among the newest half a million rows of each table, several hours of a million payouts a day, by the
-- order of their keys, so that it takes as long however large the tables are.

-- Rows that name one that does not exist.
create view orphans as
select 'ledger_entries.payout_id' as reference, n.row_id::text, n.missing_id
  from (select id as row_id, payout_id as missing_id from ledger_entries order by id desc limit 500000) n
 where n.missing_id is not null and not exists (select from payouts where id = n.missing_id)
union all
select 'rail_inbox.payout_id' as reference, n.row_id::text, n.missing_id
  from (select id as row_id, payout_id as missing_id from rail_inbox order by id desc limit 500000) n
 where n.missing_id is not null and not exists (select from payouts where id = n.missing_id)
union all
select 'events.account_id' as reference, n.row_id::text, n.missing_id
  from (select id as row_id, account_id as missing_id from events order by id desc limit 500000) n
 where n.missing_id is not null and not exists (select from accounts where id = n.missing_id)
union all
select 'deliveries.event_id' as reference, n.row_id::text, n.missing_id
  from (select event_id as row_id, event_id as missing_id from deliveries order by event_id desc limit 500000) n
 where n.missing_id is not null and not exists (select from events where id = n.missing_id)
union all
select 'deliveries.endpoint_id' as reference, n.row_id::text, n.missing_id
  from (select event_id as row_id, endpoint_id as missing_id from deliveries order by event_id desc limit 500000) n
 where n.missing_id is not null and not exists (select from webhook_endpoints where id = n.missing_id);
