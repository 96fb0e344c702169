-- Why: nothing reads these, and each row is written to them. Quotes and operators' requests are looked up by
-- their ids and never listed. A quote costs two entries, one when it is made and one when it is used. No row
-- refers to an account of the ledger by its id and currency, and its id alone is unique.
drop index quotes_account_id_id_idx;
drop index operator_requests_payout_id_id_idx;
alter table ledger_accounts drop constraint ledger_accounts_id_currency_key;
